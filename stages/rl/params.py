"""GRPO with a replay term over the elite archive; the verifier is the only reward."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.engines.params import EngineParams, OptimizerParams, Sampling, Schedule


class ReplayParams(BaseModel):
    """Forward KL from the uniform distribution over a prompt's elites (methods.md 1(b)).

    A prompt with a single elite is left out: replaying it would be SFT on one answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    coefficient: float = Field(0.1, ge=0, description="0 is plain GRPO, bit for bit")
    elites_per_step: int = Field(16, ge=1)


class PreflightParams(BaseModel):
    """What the first rollouts must show before anything is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_truncated: float = Field(0.9, ge=0, le=1)
    max_zero_variance: float = Field(0.98, ge=0, le=1)


class RlParams(SeededParams):
    expected_seconds: ClassVar[float | None] = 110

    steps: int = Field(100, ge=1)
    prompts_per_step: int = Field(8, ge=1)
    group_size: int = Field(16, ge=2)
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    replay: ReplayParams = ReplayParams()
    preflight: PreflightParams = PreflightParams()
    sampling: Sampling = Sampling()
    engine: EngineParams = EngineParams()
    optimizer: OptimizerParams = OptimizerParams(
        learning_rate=2e-4, warmup_steps=5, schedule=Schedule.CONSTANT
    )

    def work(self) -> float:
        return self.steps * self.prompts_per_step * self.group_size

    @model_validator(mode="after")
    def _support_is_replayed(self) -> "RlParams":
        if not self.sampling.full_support:
            raise ValueError(
                "rl takes ratios over the whole vocabulary: set sampling.top_p to 1 and sampling.top_k to 0"
            )
        return self


STAGE = Declaration(
    name="rl",
    version=1,
    params=RlParams,
    inputs={
        "policy": CHECKPOINT,
        "archive": dataset("elite_archive/1"),
        "prompts": dataset("prompts/1"),
        "domain": FILES,
    },
    outputs={"checkpoint": CHECKPOINT, "rollouts": dataset("rollouts/1")},
)
