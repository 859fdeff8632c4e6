"""Advantages: what a sample's reward is worth."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds


class Grpo(Choice):
    """(reward - group mean) / group std (arXiv 2402.03300)."""

    kind: Literal["grpo"] = "grpo"
    acknowledge_guessing: bool = Field(
        False, description="train on bounded answers although a lucky guess gets the largest advantages"
    )


class DrGrpo(Choice):
    """reward - group mean (arXiv 2503.20783): expected gradient (1 - 1/G) x the true one."""

    kind: Literal["dr_grpo"] = "dr_grpo"


class Rloo(Choice):
    """reward - mean of the other samples (arXiv 2402.14740): unbiased."""

    kind: Literal["rloo"] = "rloo"


class ReinforcePlusPlus(Choice):
    """(reward - batch mean) / batch std (arXiv 2501.03262)."""

    kind: Literal["reinforce_pp"] = "reinforce_pp"


class ReinforcePlusPlusBaseline(Choice):
    """(reward - group mean) / batch std of that (arXiv 2501.03262)."""

    kind: Literal["reinforce_pp_baseline"] = "reinforce_pp_baseline"


class Scope(StrEnum):
    GROUP = "group"  # Algorithm 2 of arXiv 2609.04063
    BATCH = "batch"  # counts over the batch: a global baseline, another estimator


class AllCorrect(StrEnum):
    ZERO = "zero"  # a group without a wrong sample teaches nothing: every group sums to zero
    PAPER = "paper"  # Algorithm 2 as written: +1 for each of its samples


class SignBalance(Choice):
    """+1 for a right sample, -(right / wrong) for a wrong one (arXiv 2609.04063, Algorithm 2)."""

    kind: Literal["signbalance"] = "signbalance"
    scope: Scope = Scope.GROUP
    all_correct: AllCorrect = AllCorrect.ZERO
    rho_max: float | None = Field(
        None, gt=0, description="largest right / wrong; what exceeds it is clamped, and counted"
    )


class Gae(Choice):
    """PPO's critic (arXiv 1506.02438, 1707.06347): a linear value head on the policy's last hidden states.

    The head reads detached states, so the value loss never moves the policy; it is not exported.
    """

    kind: Literal["gae"] = "gae"
    discount: float = Field(1.0, gt=0, le=1)
    trace: float = Field(0.95, ge=0, le=1, description="lambda: 1 is Monte Carlo, 0 is one step")
    learning_rate: float = Field(1e-3, gt=0, description="of the value head")


AdvantageChoice = Grpo | DrGrpo | Rloo | ReinforcePlusPlus | ReinforcePlusPlusBaseline | SignBalance | Gae
Advantage = Annotated[
    Annotated[Grpo, Tag("grpo")]
    | Annotated[DrGrpo, Tag("dr_grpo")]
    | Annotated[Rloo, Tag("rloo")]
    | Annotated[ReinforcePlusPlus, Tag("reinforce_pp")]
    | Annotated[ReinforcePlusPlusBaseline, Tag("reinforce_pp_baseline")]
    | Annotated[SignBalance, Tag("signbalance")]
    | Annotated[Gae, Tag("gae")],
    kinds("grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "signbalance", "gae"),
]
