"""Losses: how a log-prob moves."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds
from stages.estimators.params.ratio import Clip, Level, Ratio


class PolicyGradient(Choice):
    """-f(target / behaviour) x advantage x log-prob, the weight detached and taken from this very forward."""

    kind: Literal["policy_gradient"] = "policy_gradient"
    ratio: Ratio = Ratio()


class PpoClip(Choice):
    """PPO's pessimistic clip of target / proximal per token (arXiv 1707.06347); clip-higher is DAPO's."""

    kind: Literal["ppo_clip"] = "ppo_clip"
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    correction: Ratio | None = Field(None, description="a weight f(proximal / behaviour) on top")


class Cispo(Choice):
    """CISPO (arXiv 2506.13585): the policy gradient at token level with a clipped, detached ratio."""

    kind: Literal["cispo"] = "cispo"
    clip_low: float = Field(1.0, gt=0, le=1, description="1 is no lower clip, as in the paper")
    clip_high: float = Field(4.0, gt=0)

    @property
    def ratio(self) -> Ratio:
        return Ratio(level=Level.TOKEN, regulariser=Clip(low=1 - self.clip_low, high=1 + self.clip_high))


class Gspo(Choice):
    """GSPO (arXiv 2507.18071): PPO's clip at geometric level, averaged over sequences."""

    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(3e-4, gt=0, lt=1)
    clip_high: float = Field(4e-4, gt=0)
    correction: Ratio | None = Field(None, description="a weight f(proximal / behaviour) on top")


LossChoice = PolicyGradient | PpoClip | Cispo | Gspo
Loss = Annotated[
    Annotated[PolicyGradient, Tag("policy_gradient")]
    | Annotated[PpoClip, Tag("ppo_clip")]
    | Annotated[Cispo, Tag("cispo")]
    | Annotated[Gspo, Tag("gspo")],
    kinds("ppo_clip", "policy_gradient", "cispo", "gspo"),
]
