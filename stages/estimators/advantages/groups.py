"""Advantages of a group of samples of one prompt; no group sees another.

A group whose scorable rewards are all equal, or are fewer than two, has exact zeros and is not informative.
Each function raises GuardError for groups of one sample, shapes that differ, or a scorable reward that is not
finite.
"""

from torch import Tensor, zeros_like

from stages.estimators.advantages.result import Advantages, require_groups


def grpo(rewards_PG: Tensor, scorable_PG: Tensor) -> Advantages:
    """GRPO (arXiv 2402.03300): (reward - mean) / std over the group's scorable samples.

    The std is the population's (divided by the count, not by count - 1); nothing is added to it. It weights
    prompts by more than their gradient: with rewards 0 and 1 by E[sqrt(n (G - n))] / (G p (1 - p)), n right.
    """
    centred_PG, informative_P = centred(rewards_PG, scorable_PG)
    # The largest difference first: a square of a tiny or huge one would underflow or overflow.
    unit_PG = centred_PG / centred_PG.abs().amax(1, keepdim=True).where(informative_P[:, None], 1.0)
    std_P = (unit_PG.square().sum(1) / scorable_PG.sum(1).clamp(min=1)).sqrt().where(informative_P, 1.0)
    return Advantages(unit_PG / std_P[:, None], informative_P)


def dr_grpo(rewards_PG: Tensor, scorable_PG: Tensor) -> Advantages:
    """Dr. GRPO (arXiv 2503.20783): reward - mean of the group's scorable samples, not divided by the std.

    The mean contains the sample's own reward: the expected gradient is (1 - 1/G) x the true one.
    """
    return Advantages(*centred(rewards_PG, scorable_PG))


def rloo(rewards_PG: Tensor, scorable_PG: Tensor) -> Advantages:
    """RLOO (arXiv 2402.14740): reward - mean of the group's other scorable samples.

    The expected gradient is the true one. Taken as n / (n - 1) x (reward - mean), the same number.
    """
    centred_PG, informative_P = centred(rewards_PG, scorable_PG)
    count_P = scorable_PG.sum(1).to(rewards_PG)  # a quotient of integers would be of the default dtype
    scale_P = count_P / (count_P - 1).clamp(min=1)
    return Advantages(centred_PG * scale_P[:, None], informative_P)


def centred(rewards_PG: Tensor, scorable_PG: Tensor) -> tuple[Tensor, Tensor]:
    """Reward - mean of the group's scorable samples [P, G], and which groups have rewards that differ [P]."""
    require_groups(rewards_PG, scorable_PG)
    zero = zeros_like(rewards_PG)
    count_P = scorable_PG.sum(1)
    mean_P = rewards_PG.where(scorable_PG, zero).sum(1) / count_P.clamp(min=1)
    # Equality of rewards, not std == 0: the mean of equal floats may differ from them in the last bit.
    lowest_P = rewards_PG.where(scorable_PG, zero + float("inf")).amin(1)
    highest_P = rewards_PG.where(scorable_PG, zero - float("inf")).amax(1)
    informative_P = highest_P > lowest_P
    counts_PG = scorable_PG & informative_P[:, None]
    return (rewards_PG - mean_P[:, None]).where(counts_PG, zero), informative_P
