"""Advantages of a group of samples of one prompt, over its scorable members only.

A sample without a verdict is not a sample with reward 0: it leaves the mean, the deviation and the
denominator, and its own advantage is 0.
"""

from dataclasses import dataclass

from torch import Tensor, zeros_like

from stages.errors import GuardError


@dataclass(frozen=True)
class GroupAdvantages:
    """`values_PG`: an advantage per sample, 0 where unscorable. `informative_P`: groups with a gradient.

    A group whose scorable rewards are all equal, or that has no scorable sample, is not informative and has
    exact zeros. Filter by `informative_P`, that is by whole groups, never by rows.
    """

    values_PG: Tensor
    informative_P: Tensor


def group_relative(rewards_PG: Tensor, scorable_PG: Tensor) -> GroupAdvantages:
    """GRPO (arXiv 2402.03300): (reward - mean) / std over the group's scorable samples.

    The std is the population's (divided by the count, not by count - 1); nothing is added to it.
    Raises GuardError for groups of one sample, shapes that differ, or a scorable reward that is not finite.
    """
    centred_PG, informative_P = _centred(rewards_PG, scorable_PG)
    count_P = scorable_PG.sum(1).clamp(min=1)
    std_P = (centred_PG.square().sum(1) / count_P).sqrt()
    divisor_P = std_P.where(informative_P, std_P.new_ones(()))
    return GroupAdvantages(centred_PG / divisor_P[:, None], informative_P)


def group_mean(rewards_PG: Tensor, scorable_PG: Tensor) -> GroupAdvantages:
    """Dr. GRPO (arXiv 2503.20783): reward - mean of the group's scorable samples, not divided by std.

    Raises GuardError as `group_relative`.
    """
    return GroupAdvantages(*_centred(rewards_PG, scorable_PG))


def _centred(rewards_PG: Tensor, scorable_PG: Tensor) -> tuple[Tensor, Tensor]:
    _check(rewards_PG, scorable_PG)
    zero = zeros_like(rewards_PG)
    count_P = scorable_PG.sum(1)
    mean_P = rewards_PG.where(scorable_PG, zero).sum(1) / count_P.clamp(min=1)
    # Equality of rewards, not std == 0: the mean of equal floats may differ from them in the last bit.
    lowest_P = rewards_PG.where(scorable_PG, zero + float("inf")).amin(1)
    highest_P = rewards_PG.where(scorable_PG, zero - float("inf")).amax(1)
    informative_P = highest_P > lowest_P
    counts_PG = scorable_PG & informative_P[:, None]
    return (rewards_PG - mean_P[:, None]).where(counts_PG, zero), informative_P


def _check(rewards_PG: Tensor, scorable_PG: Tensor) -> None:
    if rewards_PG.ndim != 2 or rewards_PG.shape != scorable_PG.shape:
        raise GuardError(
            f"group advantages need rewards and verdict masks of one shape [prompts, samples], "
            f"got {list(rewards_PG.shape)} and {list(scorable_PG.shape)}"
        )
    if rewards_PG.shape[1] < 2:
        raise GuardError("a group of one sample has no relative advantage: sample at least two per prompt")
    if not rewards_PG[scorable_PG].isfinite().all():
        raise GuardError("a scorable sample has a reward that is not finite: mark it unscorable instead")
