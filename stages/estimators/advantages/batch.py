"""REINFORCE++ (arXiv 2501.03262): advantages normalised over the whole batch; no prompt is reweighted.

Deviations are the population's over the batch's scorable samples, each counted once whatever its length.
Dividing by the batch's own std scales a step as a whole; since the std varies with the rewards, the expected
gradient is not a multiple of the true one. That of the difference alone is, as stated below.
"""

from torch import Tensor, zeros_like

from stages.estimators.advantages.groups import centred
from stages.estimators.advantages.result import Advantages, require_rewards


def reinforce_plus_plus(rewards_PG: Tensor, scorable_PG: Tensor) -> Advantages:
    """(reward - batch mean) / batch std. Groups of one sample are fine.

    Of the difference the expected gradient is (1 - 1/N) x the true one's mean over prompts, N = P G samples.
    Every group with a scorable sample is informative, unless all rewards of the batch are equal.
    Raises GuardError for shapes that differ or a scorable reward that is not finite.
    """
    require_rewards(rewards_PG, scorable_PG)
    scored_N = rewards_PG[scorable_PG]
    varied = bool((scored_N != scored_N[:1]).any())
    informative_P = scorable_PG.any(1) & varied
    if not varied:
        return Advantages(zeros_like(rewards_PG), informative_P)
    centred_PG = (rewards_PG - scored_N.mean()).where(scorable_PG, zeros_like(rewards_PG))
    return Advantages(centred_PG / _std(centred_PG, scorable_PG), informative_P)


def reinforce_plus_plus_baseline(rewards_PG: Tensor, scorable_PG: Tensor) -> Advantages:
    """(reward - group mean) / batch std of that difference, whose batch mean is 0 already.

    Of the difference the expected gradient is that of `dr_grpo`. Groups whose rewards are all equal have
    zeros and are not informative, but count in the std. Raises GuardError as the functions of `groups`.
    """
    centred_PG, informative_P = centred(rewards_PG, scorable_PG)
    if not informative_P.any():
        return Advantages(centred_PG, informative_P)
    return Advantages(centred_PG / _std(centred_PG, scorable_PG), informative_P)


def _std(centred_PG: Tensor, scorable_PG: Tensor) -> Tensor:
    largest = centred_PG.abs().max()  # out of the squares, which would underflow or overflow
    return largest * ((centred_PG / largest).square().sum() / scorable_PG.sum()).sqrt()
