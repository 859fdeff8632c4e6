"""The parts together: what decides an RL step's gradient."""

from pydantic import Field, model_validator

from stages.estimators.params.advantage import Advantage, Grpo
from stages.estimators.params.aggregation import Aggregation, TokenMean
from stages.estimators.params.centering import Centering
from stages.estimators.params.choice import Choice
from stages.estimators.params.loss import Loss, PpoClip
from stages.estimators.params.penalty import KlPenalty
from stages.estimators.params.sampling import DynamicSampling, Overlong


class EstimatorParams(Choice):
    """What decides an RL step's gradient, given its samples; checked by `rules.refuse_impossible`."""

    advantage: Advantage = Grpo()
    loss: Loss = PpoClip()
    centering: Centering | None = None
    aggregation: Aggregation = TokenMean()
    kl: KlPenalty | None = None
    overlong: Overlong | None = None
    dynamic_sampling: DynamicSampling | None = None
    updates_per_batch: int = Field(1, ge=1, description="optimizer steps on each batch of samples")
    sampler_lag: int = Field(0, ge=0, description="steps by which the sampler's weights are older")
    acknowledge_prefix_bias: bool = Field(
        False, description="take a regularised token ratio without score centering (methods.md 3(b))"
    )

    @model_validator(mode="after")
    def _parts_go_together(self) -> "EstimatorParams":
        from stages.estimators.rules import refuse_impossible

        refuse_impossible(self)
        return self
