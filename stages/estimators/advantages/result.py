"""Advantages of samples in groups, and what every function that makes them asks of its rewards."""

from dataclasses import dataclass

from torch import Tensor

from stages.errors import GuardError


@dataclass(frozen=True)
class Advantages:
    """`values_PG`: an advantage per sample, 0 where unscorable. `informative_P`: groups with a gradient.

    A group that is not informative has exact zeros. Filter by `informative_P`, that is by whole groups, never
    by rows: a row may stand exactly at its baseline in a group that teaches.
    """

    values_PG: Tensor
    informative_P: Tensor


def require_rewards(rewards_PG: Tensor, scorable_PG: Tensor) -> None:
    """Raises GuardError unless both are [P, G], rewards are finite constants where scorable."""
    if rewards_PG.ndim != 2 or rewards_PG.shape != scorable_PG.shape:
        raise GuardError(
            f"advantages need rewards and verdict masks of one shape [prompts, samples], "
            f"got {list(rewards_PG.shape)} and {list(scorable_PG.shape)}"
        )
    if not rewards_PG.is_floating_point():
        raise GuardError(f"rewards must be floating point numbers, got {rewards_PG.dtype}: convert them")
    if rewards_PG.requires_grad:
        raise GuardError("rewards carry a gradient: detach them, an advantage is a constant of the loss")
    if not rewards_PG[scorable_PG].isfinite().all():
        raise GuardError("a scorable sample has a reward that is not finite: mark it unscorable instead")


def require_groups(rewards_PG: Tensor, scorable_PG: Tensor) -> None:
    """As `require_rewards`, and raises GuardError for groups of one sample."""
    require_rewards(rewards_PG, scorable_PG)
    if rewards_PG.shape[1] < 2:
        raise GuardError("a group of one sample has no relative advantage: sample at least two per prompt")
