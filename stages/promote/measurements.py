"""An evaluation as numbers per prompt, and differences between two evaluations of the same prompts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_contracts.evaluation.metric import Metric


@dataclass(frozen=True)
class PromptMeasurement:
    """One prompt's estimates by (metric, k); `samples` and `unscorable` are counts of completions."""

    capability: str
    split: str
    samples: int
    unscorable: int
    estimates: Mapping[tuple[Metric, int], float]


class Measurements:
    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """`rows` of evaluation/1."""
        by_prompt: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            by_prompt.setdefault(row["prompt_id"], []).append(row)
        self.prompts = {prompt: _measurement(of_prompt) for prompt, of_prompt in by_prompt.items()}

    @property
    def ks(self) -> list[int]:
        return sorted({k for prompt in self.prompts.values() for _, k in prompt.estimates})

    @property
    def capabilities(self) -> list[str]:
        return sorted({prompt.capability for prompt in self.prompts.values()})

    @property
    def splits(self) -> list[str]:
        return sorted({prompt.split for prompt in self.prompts.values()})

    def values(self, metric: Metric, k: int, where: "Where | None" = None) -> dict[str, float]:
        """Prompt id -> estimate, of the prompts that have it."""
        return {
            prompt: found.estimates[metric, k]
            for prompt, found in self.prompts.items()
            if (metric, k) in found.estimates and (where is None or where(found))
        }

    def mean(self, metric: Metric, k: int, where: "Where | None" = None) -> float | None:
        values = list(self.values(metric, k, where).values())
        return math.fsum(values) / len(values) if values else None


Where = Callable[[PromptMeasurement], bool]


def of_capability(capability: str) -> Where:
    return lambda prompt: prompt.capability == capability


def of_split(split: str) -> Where:
    return lambda prompt: prompt.split == split


@dataclass(frozen=True)
class PairedDifference:
    """After minus before, over the prompts that both measured. Its mean is None when there are none."""

    mean: float | None
    standard_error: float
    prompts: int

    def falls_beyond(self, tolerance: float, sigmas: float) -> bool:
        return self.mean is not None and -self.mean > max(tolerance, sigmas * self.standard_error)


def paired(
    before: Measurements, after: Measurements, metric: Metric, k: int, where: Where | None = None
) -> PairedDifference:
    """The standard error is that of the difference over prompts, or for pass@1 that of sampling if larger:
    a few prompts that happen to agree would look certain without it.
    """
    first, second = before.values(metric, k, where), after.values(metric, k, where)
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return PairedDifference(None, math.inf, 0)
    differences = [second[prompt] - first[prompt] for prompt in shared]
    over_prompts = float(np.std(differences, ddof=1)) / math.sqrt(len(shared)) if len(shared) > 1 else 0.0
    of_sampling = 0.0
    if metric is Metric.PASS and k == 1:
        variance = _sampling_variance(before, first, shared) + _sampling_variance(after, second, shared)
        of_sampling = math.sqrt(variance) / len(shared)
    elif len(shared) == 1:
        over_prompts = math.inf
    return PairedDifference(math.fsum(differences) / len(shared), max(over_prompts, of_sampling), len(shared))


def spread_within_capabilities(before: Measurements, after: Measurements, metric: Metric, k: int) -> float:
    """Standard deviation of a change about its capability's mean, pooled; infinite if none has two."""
    squares, freedom = 0.0, 0
    for capability in before.capabilities:
        first = before.values(metric, k, of_capability(capability))
        second = after.values(metric, k, of_capability(capability))
        changes = [second[prompt] - first[prompt] for prompt in first.keys() & second.keys()]
        if changes:
            mean = math.fsum(changes) / len(changes)
            squares += math.fsum((change - mean) ** 2 for change in changes)
            freedom += len(changes) - 1
    return math.sqrt(squares / freedom) if freedom else math.inf


def _sampling_variance(measured: Measurements, rates: Mapping[str, float], shared: Sequence[str]) -> float:
    """Sum over prompts of the variance of a share of correct samples."""
    return math.fsum(
        rates[prompt] * (1 - rates[prompt]) / (found.samples - found.unscorable)
        for prompt in shared
        for found in [measured.prompts[prompt]]
    )


def _measurement(rows: Sequence[Mapping[str, Any]]) -> PromptMeasurement:
    first = rows[0]
    return PromptMeasurement(
        capability=first["capability"],
        split=first["split"],
        samples=first["n"],
        unscorable=first["unscorable"],
        estimates={
            (metric, row["k"]): row[metric.column]
            for row in rows
            for metric in Metric
            if row[metric.column] is not None
        },
    )
