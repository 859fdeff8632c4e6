"""summary.json: means over prompts with their spread, per split, overall and per capability."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data_contracts.evaluation.metric import Metric
from data_contracts.values import StopReason
from stages.evaluate.tally import UNSIGNED, Tally

OVERALL = "overall"


def summarise(
    tallies: Sequence[Tally], rows: Sequence[Mapping[str, Any]], trained_capabilities: Iterable[str]
) -> dict[str, Any]:
    """`rows` are those of evaluation/1 for the same prompts.

    A metric is `{mean, standard_error, std, prompts}` over the prompts that have it: both@k over ambiguous
    ones, any over those with k scorable samples. `trained`: training prompts have the capability as well.
    """
    trained = set(trained_capabilities)
    splits = sorted({tally.split for tally in tallies})
    return {
        "samples_per_prompt": max(tally.samples for tally in tallies),
        "ks": sorted({row["k"] for row in rows}),
        "scopes": {OVERALL: scope(tallies, rows)}
        | {split: scope(*_where("split", split, tallies, rows)) for split in splits},
        "matrix": {
            capability: {"trained": capability in trained}
            | scope(*_where("capability", capability, tallies, rows))
            for capability in sorted({tally.capability for tally in tallies})
        },
    }


def scope(tallies: Sequence[Tally], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and metrics of some prompts; shares and lengths are over all samples, also unscorable ones."""
    samples = sum(tally.samples for tally in tallies)
    stops = _total(tally.stop_reasons for tally in tallies)
    return {
        "prompts": len(tallies),
        "ambiguous": sum(bool(tally.ambiguity) for tally in tallies),
        "samples": samples,
        "unscorable": _total(tally.unscorable for tally in tallies),
        "unsigned": sum(tally.strategies.get(UNSIGNED, 0) for tally in tallies),
        "stop_reasons": stops,
        "truncated_share": stops.get(StopReason.LENGTH, 0) / samples,
        "mean_length": sum(tally.tokens for tally in tallies) / samples,
        "metrics": metrics(rows),
    }


def metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | int | None]]:
    """`pass@k`, `distinct@k` and, where there are ambiguous prompts, `both@k`, for each k of the rows."""
    found = {}
    for metric in Metric:
        for k in sorted({row["k"] for row in rows}):
            values = [row[metric.column] for row in rows if row["k"] == k and row[metric.column] is not None]
            if values:
                found[f"{metric}@{k}"] = spread(values)
    return found


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Mean, its standard error and the standard deviation (of count - 1); no spread is known of one value."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {
        "mean": math.fsum(values) / len(values),
        "standard_error": None if std is None else std / math.sqrt(len(values)),
        "std": std,
        "prompts": len(values),
    }


def _where(
    field: str, value: str, tallies: Sequence[Tally], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Tally], list[Mapping[str, Any]]]:
    return (
        [tally for tally in tallies if getattr(tally, field) == value],
        [row for row in rows if row[field] == value],
    )


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
