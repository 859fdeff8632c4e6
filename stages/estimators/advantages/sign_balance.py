"""SIGNBALANCE (arXiv 2609.04063, Algorithm 2): the sign of the verdict, its two sides of equal weight."""

from dataclasses import dataclass

from torch import Tensor, zeros_like

from stages.errors import GuardError
from stages.estimators.advantages.result import Advantages, require_groups, require_rewards
from stages.estimators.params import AllCorrect, Scope

RIGHT, WRONG = 1.0, (0.0, -1.0)


@dataclass(frozen=True)
class SignBalanced:
    """The advantages, and what was not as the formula has it.

    `clamped`: ratios above `rho_max` (one per group, or one of the batch); each leaves a positive sum.
    `all_correct_groups`, `all_wrong_groups`: of the groups with a scorable sample.
    `largest_ratio`: right / wrong before clamping, 0 where no ratio exists; above 4 is worth a warning.
    """

    advantages: Advantages
    clamped: int
    all_correct_groups: int
    all_wrong_groups: int
    largest_ratio: float


def signbalance(
    rewards_PG: Tensor,
    scorable_PG: Tensor,
    scope: Scope,
    all_correct: AllCorrect,
    rho_max: float | None = None,
) -> SignBalanced:
    """+1 for a right sample, -(right / wrong) for a wrong one, counted over scorable samples.

    Scope GROUP: counts of the sample's group. With p the probability of a right sample the expected gradient
    is omega(p) grad p. A group without a wrong sample has zeros with AllCorrect.ZERO, and then omega(p) =
    (1 - p^(G-1)) / (1 - p); it has +1 each with AllCorrect.PAPER, as the paper writes it, and then omega(p) =
    (1 - p^G) / (1 - p), the sum of p^j over j < G.
    Scope BATCH: counts of the batch, the same as (reward - mean) / (1 - mean); `all_correct` is then about a
    batch without a wrong sample. All-wrong: zeros.

    Raises GuardError unless every scorable reward is 1.0 (right) or one and the same of 0.0 and -1.0 (wrong),
    and as `require_groups` (scope GROUP) or `require_rewards`.
    """
    (require_groups if scope is Scope.GROUP else require_rewards)(rewards_PG, scorable_PG)
    _require_binary(rewards_PG[scorable_PG])
    zero_PG = zeros_like(rewards_PG)
    right_PG = scorable_PG & (rewards_PG == RIGHT)
    wrong_PG = scorable_PG & ~right_PG
    right_P1, wrong_P1 = right_PG.sum(1, keepdim=True), wrong_PG.sum(1, keepdim=True)
    all_correct_groups = int(((right_P1 > 0) & (wrong_P1 == 0)).sum())
    all_wrong_groups = int(((right_P1 == 0) & (wrong_P1 > 0)).sum())
    if scope is Scope.BATCH:
        right_P1, wrong_P1 = right_P1.sum(0, keepdim=True), wrong_P1.sum(0, keepdim=True)

    ratio_P1 = (right_P1.to(rewards_PG) / wrong_P1.clamp(min=1)).where(wrong_P1 > 0, 0.0)
    rho_P1 = ratio_P1 if rho_max is None else ratio_P1.clamp(max=rho_max)
    without_wrong = 1.0 if all_correct is AllCorrect.PAPER else 0.0
    positive_PG = (zero_PG + 1).where(wrong_P1 > 0, without_wrong)
    values_PG = positive_PG.where(right_PG, (zero_PG - rho_P1).where(wrong_PG, zero_PG))
    return SignBalanced(
        Advantages(values_PG, (values_PG != 0).any(1)),
        clamped=int((rho_P1 < ratio_P1).sum()),
        all_correct_groups=all_correct_groups,
        all_wrong_groups=all_wrong_groups,
        largest_ratio=float(ratio_P1.max()) if len(ratio_P1) else 0.0,
    )


def _require_binary(rewards_N: Tensor) -> None:
    others = sorted(set(rewards_N.tolist()) - {RIGHT})
    if len(others) > 1 or not set(others) <= set(WRONG):
        raise GuardError(
            f"signbalance needs rewards of exactly two values, 1 for right and 0 or -1 for wrong, but "
            f"besides 1 there is {', '.join(f'{value:g}' for value in others[:4])}: choose another "
            f"advantage, or reward without shaping"
        )
