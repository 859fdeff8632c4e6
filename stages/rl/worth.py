"""What each sample of a step is worth: its reward with what length costs, and its advantage."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.estimators.advantages import (
    Advantages,
    dr_grpo,
    grpo,
    overlong_penalty,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rloo,
    signbalance,
)
from stages.estimators.params import (
    DrGrpo,
    Gae,
    Grpo,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Rloo,
    Scope,
    SignBalance,
)
from stages.rl.params import RlParams
from stages.sampling.judged import Judged, rewards_PG


@dataclass(frozen=True)
class Worth:
    """Rewards and advantages [P, G]; the groups to train on are `advantages.informative_P`."""

    rewards_PG: Tensor
    scorable_PG: Tensor
    advantages: Advantages
    metrics: dict[str, float] = field(default_factory=dict)


def with_variance_P(groups: Sequence[Sequence[Judged]]) -> list[bool]:
    """Groups whose verdicts differ, whatever the estimator makes of them."""
    informative: list[bool] = dr_grpo(*rewards_PG(groups)).informative_P.tolist()
    return informative


def worth(groups: Sequence[Sequence[Judged]], params: RlParams) -> Worth:
    """Raises GuardError where the estimator is not defined for these rewards."""
    rewards, scorable = rewards_PG(groups)
    if params.overlong is not None:
        lengths_PG = torch.tensor([[len(sample.rollout.completion_ids) for sample in g] for g in groups])
        rewards = rewards + overlong_penalty(
            lengths_PG, params.sampling.max_new_tokens, params.overlong.cache
        )
    match params.advantage:
        case Grpo():
            return Worth(rewards, scorable, grpo(rewards, scorable))
        case DrGrpo():
            return Worth(rewards, scorable, dr_grpo(rewards, scorable))
        case Rloo():
            return Worth(rewards, scorable, rloo(rewards, scorable))
        case ReinforcePlusPlus():
            return Worth(rewards, scorable, reinforce_plus_plus(rewards, scorable))
        case ReinforcePlusPlusBaseline():
            return Worth(rewards, scorable, reinforce_plus_plus_baseline(rewards, scorable))
        case SignBalance() as choice:
            balanced = signbalance(rewards, scorable, choice.scope, choice.all_correct, choice.rho_max)
            ratios = len(groups) if choice.scope is Scope.GROUP else 1
            told = {
                "clamped": balanced.clamped / ratios,
                "all_correct": balanced.all_correct_groups / len(groups),
                "all_wrong": balanced.all_wrong_groups / len(groups),
                "largest_ratio": balanced.largest_ratio,
            }
            return Worth(rewards, scorable, balanced.advantages, told)
        case Gae():  # the critic values tokens; here every sample with a verdict is worth training on
            return Worth(rewards, scorable, Advantages(torch.zeros_like(rewards), scorable.any(1)))
