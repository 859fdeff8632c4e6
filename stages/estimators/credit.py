"""DRACO's credit (arXiv 2609.04094): a trajectory's advantage moved to the steps that its rubric cites.

A step is what the policy wrote in one turn. Tokens of the environment belong to no step, have advantage 0 and
are not counted. Suffixes: R trajectories, S steps (padded: a step of 0 tokens does not exist). Counts may be
integers or floats.
"""

from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from stages.errors import GuardError

ROUNDING = 1e-9


class Fallback(StrEnum):
    """Why a trajectory's advantage was left uniform, as in GRPO."""

    NONE = "none"
    NO_CITATION = "no_citation"  # no criterion cites a step
    NO_WEIGHT = "no_weight"  # the cited steps of a winner all failed, or those of a loser all passed


@dataclass(frozen=True)
class Redistribution:
    """`advantages_RS`: of every token of a step, 0 where there is no step, in the dtype of the advantage.

    `fallback_R`: one per trajectory. `amplified`: steps held at the cap. `spilled`: trajectories whose steps
    of weight were all held, so that the rest went to steps without. `largest`: of advantages_RS / advantage.
    """

    advantages_RS: Tensor
    fallback_R: tuple[Fallback, ...]
    amplified: int
    spilled: int
    largest: float


def rubric_reward(passed: Tensor, failed: Tensor) -> Tensor:
    """(passed - failed) / (passed + failed) criteria in [-1, 1]; 0 where none applies. Any shape, float64.

    Raises GuardError for counts that are not finite and at least 0.
    """
    _require_counts(passed, failed)
    return (passed - failed).double() / (passed + failed).clamp(min=1)


def step_quality_RS(passed_RS: Tensor, failed_RS: Tensor, tokens_RS: Tensor) -> Tensor:
    """Share of passing ones among the criteria that cite a step; an uncited step has the mean of the cited.

    Float64, 0 where there is no step and for a trajectory that nothing cites.
    """
    cited_RS = (passed_RS + failed_RS) > 0
    share_RS = passed_RS.double() / (passed_RS + failed_RS).clamp(min=1)
    mean_R1 = share_RS.sum(1, keepdim=True) / cited_RS.sum(1, keepdim=True).clamp(min=1)
    return share_RS.where(cited_RS, mean_R1).where(tokens_RS > 0, 0.0)


def redistribute(
    advantage_R: Tensor,
    tokens_RS: Tensor,
    passed_RS: Tensor,
    failed_RS: Tensor,
    max_amplification: float | None = None,
) -> Redistribution:
    """a_j = A N w_j / (n_j sum of w): w_j = Q_j for A >= 0, else 1 - Q_j; n_j tokens of step j, N their sum.

    `passed_RS`, `failed_RS`: criteria that cite the step. Conserved is the token-weighted sum, sum n_j a_j =
    A N, neither sum a_j nor the rubric's reward. A step's share of it does not depend on its length. Not
    continuous: steps of equal quality have equal totals, whereas without a citation (or without weight) their
    tokens have equal advantages, so that a first citation may lower the share of the long step that it cites.

    `max_amplification`: the most a_j / A may be, at least 1 (which is GRPO). What exceeds it goes to the
    other steps in proportion to w_j; if all steps of weight are full, the rest goes to the others' tokens
    evenly.

    Raises GuardError for shapes that differ, counts or advantages that are not finite, a trajectory without
    a token, a citation of a step without tokens, a cap below 1; and if the result is not conserved.
    """
    _require_trajectories(advantage_R, tokens_RS, passed_RS, failed_RS)
    if max_amplification is not None and max_amplification < 1:
        raise GuardError(
            f"max_amplification is {max_amplification}, but below 1 the advantage cannot be conserved: "
            f"set 1 or more, or none"
        )
    advantage_R1 = advantage_R.double().unsqueeze(1)
    quality_RS = step_quality_RS(passed_RS, failed_RS, tokens_RS)
    weight_RS = quality_RS.where(advantage_R1 >= 0, 1 - quality_RS).where(tokens_RS > 0, 0.0)
    cited_R = ((passed_RS + failed_RS) > 0).any(1)
    moved_R = cited_R & (weight_RS > 0).any(1)
    factor_RS, held_RS, spilled_R = _amplification_RS(
        weight_RS.where(moved_R[:, None], 0.0), tokens_RS.double(), max_amplification
    )
    factor_RS = factor_RS.where(moved_R[:, None], (tokens_RS > 0).double())
    advantages_RS = advantage_R1 * factor_RS
    require_conserved(advantage_R, tokens_RS, advantages_RS)
    return Redistribution(
        advantages_RS.to(advantage_R),
        tuple(
            Fallback.NONE if moved else Fallback.NO_WEIGHT if cited else Fallback.NO_CITATION
            for moved, cited in zip(moved_R.tolist(), cited_R.tolist(), strict=True)
        ),
        amplified=int(held_RS.sum()),
        spilled=int(spilled_R.sum()),
        largest=max(factor_RS.flatten().tolist(), default=0.0),
    )


def require_conserved(advantage_R: Tensor, tokens_RS: Tensor, advantages_RS: Tensor) -> None:
    """Raises GuardError unless each trajectory's token-weighted sum is A N, no step's sign is against A's,
    and there is nothing where there is no step.
    """
    advantage_R, tokens_RS, advantages_RS = advantage_R.double(), tokens_RS.double(), advantages_RS.double()
    whole_R = advantage_R * tokens_RS.sum(1)
    lost_R = ((tokens_RS * advantages_RS).sum(1) - whole_R).abs()
    if not (lost_R <= ROUNDING * whole_R.abs()).all():
        raise GuardError(
            f"a trajectory's advantage is off by {float(lost_R.max()):g} in its sum: report this"
        )
    against_RS = advantages_RS * advantage_R.sign().unsqueeze(1) < 0
    if against_RS.any():
        raise GuardError("a step's advantage has the sign opposite to its trajectory's: report this")
    if (advantages_RS[tokens_RS == 0] != 0).any():
        raise GuardError("a step without tokens has an advantage: report this")


def _amplification_RS(
    weight_RS: Tensor, tokens_RS: Tensor, cap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """a_j / A; which steps are held at the cap; which trajectories had to give to steps without weight."""
    length_RS = tokens_RS.clamp(min=1)
    total_R1 = tokens_RS.sum(1, keepdim=True)
    held_RS = tokens_RS < 0
    while True:  # each round holds one step more or is the last
        left_R1 = total_R1 - (cap or 0) * tokens_RS.where(held_RS, 0.0).sum(1, keepdim=True)
        open_R1 = weight_RS.where(~held_RS, 0.0).sum(1, keepdim=True)
        scale_R1 = left_R1 / open_R1.where(open_R1 > 0, 1.0)
        factor_RS = scale_R1 * weight_RS / length_RS
        if cap is None:
            return factor_RS, held_RS, held_RS.any(1)
        over_RS = ~held_RS & (factor_RS > cap * (1 + ROUNDING))
        if not over_RS.any():
            break
        held_RS = held_RS | over_RS
    full_R1 = (open_R1 == 0) & held_RS.any(1, keepdim=True)
    weightless_RS = tokens_RS.where(weight_RS == 0, 0.0)
    even_R1 = left_R1.clamp(min=0) / weightless_RS.sum(1, keepdim=True).clamp(min=1)
    factor_RS = factor_RS.where(~full_R1, even_R1 * (weightless_RS > 0))
    return factor_RS.where(~held_RS, cap), held_RS, full_R1.squeeze(1)


def _require_trajectories(
    advantage_R: Tensor, tokens_RS: Tensor, passed_RS: Tensor, failed_RS: Tensor
) -> None:
    if (
        tokens_RS.ndim != 2
        or not tokens_RS.shape == passed_RS.shape == failed_RS.shape
        or advantage_R.shape != tokens_RS.shape[:1]
    ):
        raise GuardError(
            f"credit needs one advantage a trajectory and tokens, passes, fails [trajectories, steps], got "
            f"{[list(given.shape) for given in (advantage_R, tokens_RS, passed_RS, failed_RS)]}"
        )
    if not advantage_R.is_floating_point() or not advantage_R.isfinite().all():
        raise GuardError("a trajectory has an advantage that is not a finite float: leave it out")
    _require_counts(tokens_RS, passed_RS, failed_RS)
    if (tokens_RS.sum(1) == 0).any():
        raise GuardError("a trajectory has no token that the policy wrote: leave it out")
    if ((passed_RS + failed_RS)[tokens_RS == 0] > 0).any():
        raise GuardError(
            "a criterion cites a step that the policy did not write: cite only the policy's own steps"
        )


def _require_counts(*counts: Tensor) -> None:
    for count in counts:
        if not ((count >= 0) & (count < float("inf"))).all():
            raise GuardError("counts of tokens and criteria must be finite and at least 0")
