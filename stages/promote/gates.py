"""The gates, each a pure function of two evaluations. A gate that cannot be measured does not hold."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from stages.promote.measurements import (
    Measurements,
    Metric,
    PairedDifference,
    Where,
    of_capability,
    of_split,
    paired,
    spread_within_capabilities,
)
from stages.promote.params import PromoteParams


@dataclass(frozen=True)
class Gate:
    """`observed` against `limit` (both None when nothing was measured), and the same in words."""

    name: str
    holds: bool
    observed: float | None
    limit: float | None
    sentence: str


def judge(before: Measurements, after: Measurements, params: PromoteParams) -> list[Gate]:
    return [
        same_prompts(before, after),
        verdicts(after, params),
        gain(before, after, params),
        *readings(before, after, params),
        *splits(before, after, params),
        *capabilities(before, after, params),
    ]


def same_prompts(before: Measurements, after: Measurements) -> Gate:
    """Differences are paired by prompt, so both evaluations must be of the same prompts and the same ks."""
    unpaired = len(before.prompts.keys() ^ after.prompts.keys())
    same_ks = before.ks == after.ks
    holds = unpaired == 0 and same_ks
    ks = "" if same_ks else f"; the ks are {before.ks} before and {after.ks} after"
    return Gate(
        "same prompts",
        holds,
        float(unpaired),
        0.0,
        f"{len(after.prompts)} prompts are measured before and after"
        if holds
        else f"{unpaired} prompts are measured in only one of the two evaluations{ks}",
    )


def verdicts(after: Measurements, params: PromoteParams) -> Gate:
    samples = sum(prompt.samples for prompt in after.prompts.values())
    share = sum(prompt.unscorable for prompt in after.prompts.values()) / samples if samples else 1.0
    return Gate(
        "verdicts",
        share <= params.max_unscorable,
        share,
        params.max_unscorable,
        f"{share:.2%} of the candidate's samples have no verdict; at most {params.max_unscorable:.2%} may",
    )


def gain(before: Measurements, after: Measurements, params: PromoteParams) -> Gate:
    """pass@1 rises by `minimum_gain` at least, and by more than noise."""
    difference = paired(before, after, Metric.PASS, 1)
    if difference.mean is None:
        return _unmeasured("gain", "pass@1")
    noise = params.sigmas * difference.standard_error
    holds = difference.mean >= params.minimum_gain and difference.mean > noise
    return Gate(
        "gain",
        holds,
        difference.mean,
        max(params.minimum_gain, noise),
        f"pass@1 changes by {difference.mean:+.3f} over {difference.prompts} prompts; it must rise by "
        f"{params.minimum_gain:.3f} and by more than {params.sigmas:g} standard errors ({noise:.3f})",
    )


def reach(
    before: Measurements, after: Measurements, params: PromoteParams, where: Where | None = None
) -> Gate:
    """pass@k at the largest k: what the model can still find."""
    k = _largest_k(before, after)
    difference = paired(before, after, Metric.PASS, k, where)
    return _no_fall("reach", f"pass@{k}", difference, params.reach_tolerance, params.sigmas)


def width(
    before: Measurements, after: Measurements, params: PromoteParams, where: Where | None = None
) -> Gate:
    """The first signal of collapse: distinct correct strategies fall while pass@1 rises."""
    k = _largest_k(before, after)
    accuracy = paired(before, after, Metric.PASS, 1, where)
    had = before.mean(Metric.DISTINCT, k, where)
    difference = paired(before, after, Metric.DISTINCT, k, where)
    if difference.mean is None or accuracy.mean is None or had is None:
        return _unmeasured("width", f"distinct@{k}")
    tolerance = params.width_tolerance * had
    fell = difference.falls_beyond(tolerance, params.sigmas)
    return Gate(
        "width",
        not (fell and accuracy.mean > 0),
        difference.mean,
        -max(tolerance, params.sigmas * difference.standard_error),
        f"distinct@{k} changes by {difference.mean:+.2f} from {had:.2f} while pass@1 changes by "
        f"{accuracy.mean:+.3f}; while pass@1 rises it may fall by {tolerance:.2f}, or within "
        f"{params.sigmas:g} standard errors ({params.sigmas * difference.standard_error:.2f})",
    )


def readings(before: Measurements, after: Measurements, params: PromoteParams) -> Iterator[Gate]:
    """both@k at the largest k; no gate where no prompt is ambiguous."""
    if any(before.values(Metric.BOTH, k) for k in before.ks):
        k = _largest_k(before, after)
        difference = paired(before, after, Metric.BOTH, k)
        yield _no_fall("readings", f"both@{k}", difference, params.readings_tolerance, params.sigmas)


def splits(before: Measurements, after: Measurements, params: PromoteParams) -> Iterator[Gate]:
    """Accuracy, reach and width of each split, so that known families cannot pay for unseen ones."""
    for split in before.splits:
        where = of_split(split)
        difference = paired(before, after, Metric.PASS, 1, where)
        gates = (
            _no_fall("accuracy", "pass@1", difference, params.capability_tolerance, params.sigmas),
            reach(before, after, params, where),
            width(before, after, params, where),
        )
        yield from (replace(gate, name=f"{gate.name} {split}") for gate in gates)


def capabilities(before: Measurements, after: Measurements, params: PromoteParams) -> Iterator[Gate]:
    """One gate for each capability that was measured before, also those that no stage trained on.

    With m capabilities, z is the normal quantile at capability_error / m. The standard error of one with n
    prompts is at least s / sqrt(n), s being the standard deviation of the change within capabilities, pooled.
    """
    found = before.capabilities
    sigmas = NormalDist().inv_cdf(1 - params.capability_error / max(1, len(found)))
    spread = spread_within_capabilities(before, after, Metric.PASS, 1)
    for capability in found:
        own = paired(before, after, Metric.PASS, 1, of_capability(capability))
        noise = spread / math.sqrt(own.prompts) if own.prompts else math.inf
        difference = replace(own, standard_error=max(own.standard_error, noise))
        name = f"capability {capability}"
        yield _no_fall(name, "pass@1", difference, params.capability_tolerance, sigmas)


def _no_fall(name: str, what: str, difference: PairedDifference, tolerance: float, sigmas: float) -> Gate:
    if difference.mean is None:
        return _unmeasured(name, what)
    noise = sigmas * difference.standard_error
    return Gate(
        name,
        not difference.falls_beyond(tolerance, sigmas),
        difference.mean,
        -max(tolerance, noise),
        f"{what} changes by {difference.mean:+.3f} over {difference.prompts} prompts; it may fall by "
        f"{tolerance:.3f}, or within {sigmas:.2f} standard errors ({noise:.3f})",
    )


def _unmeasured(name: str, what: str) -> Gate:
    sentence = f"{what} was not measured on the same prompts before and after, so it cannot be judged"
    return Gate(name, False, None, None, sentence)


def _largest_k(before: Measurements, after: Measurements) -> int:
    return max(set(before.ks) & set(after.ks), default=1)
