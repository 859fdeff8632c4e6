"""RL on the verifier's reward with replay of the elite archive; `EstimatorParams` make the gradient."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.engines.params import EngineParams, OptimizerParams, Sampling, Schedule
from stages.estimators.params import EstimatorParams, Gspo, PpoClip, Replay, UniformReplay


class PreflightParams(BaseModel):
    """What the first rollouts must show before anything is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_truncated: float = Field(0.9, ge=0, le=1)
    max_zero_variance: float = Field(0.98, ge=0, le=1)


class RlParams(SeededParams, EstimatorParams):
    expected_seconds: ClassVar[float | None] = 110

    steps: int = Field(100, ge=1)
    prompts_per_step: int = Field(8, ge=1)
    group_size: int = Field(16, ge=2)
    replay: Replay = UniformReplay()
    preflight: PreflightParams = PreflightParams()
    sampling: Sampling = Sampling()
    engine: EngineParams = EngineParams()
    optimizer: OptimizerParams = OptimizerParams(
        learning_rate=2e-4, warmup_steps=5, schedule=Schedule.CONSTANT
    )

    def work(self) -> float:
        return self.steps * self.prompts_per_step * self.group_size

    @model_validator(mode="after")
    def _sampler_and_loss_agree(self) -> "RlParams":
        if not self.sampling.full_support:
            raise ValueError(
                "rl takes ratios over the whole vocabulary: set sampling.top_p to 1 and sampling.top_k to 0"
            )
        if self.overlong is not None and self.overlong.cache > self.sampling.max_new_tokens:
            raise ValueError(
                f"overlong.cache is {self.overlong.cache}, and a completion has at most "
                f"sampling.max_new_tokens={self.sampling.max_new_tokens}: set a smaller cache"
            )
        uncorrected = isinstance(self.loss, PpoClip | Gspo) and self.loss.correction is None
        if self.engine.dtype != "float32" and uncorrected and not self.acknowledge_prefix_bias:
            raise ValueError(
                f"{self.loss.kind} takes no ratio to a sampler that computes in {self.engine.dtype}: set "
                "loss.correction, or loss.kind to policy_gradient, or acknowledge_prefix_bias to true"
            )
        return self


STAGE = Declaration(
    name="rl",
    version=2,
    params=RlParams,
    inputs={
        "policy": CHECKPOINT,
        "archive": dataset("elite_archive/1"),
        "prompts": dataset("prompts/1"),
        "domain": FILES,
    },
    outputs={"checkpoint": CHECKPOINT, "rollouts": dataset("rollouts/1"), "audit": FILES},
)
