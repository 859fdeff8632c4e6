"""The base model: pre-trained here on a mixture in which strategies are skewed and many answers are wrong."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from data_contracts.values import Split
from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.engines.params import ModelShape, OptimizerParams


class Mixture(BaseModel):
    """What a pre-training row shows.

    `random_slot_share`: rows whose slot is a random token string; without them a small Llama cannot copy
    a value that it has not seen. `strategy_skew`: a strategy's weight is `skew ** rank`, so that the base
    has favourites.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    random_slot_share: float = Field(0.5, ge=0, le=1)
    wrong_share: float = Field(0.3, ge=0, lt=1)
    strategy_skew: float = Field(0.6, gt=0, le=1)
    second_reading_share: float = Field(0.4, ge=0, le=1)


class BaseParams(SeededParams):
    expected_seconds: ClassVar[float | None] = 170

    shape: ModelShape = ModelShape()
    mixture: Mixture = Mixture()
    splits: tuple[Split, ...] = Field((Split.PRETRAIN,), min_length=1, description="whose prompts are seen")
    steps: int = Field(800, ge=1)
    rows_per_step: int = Field(64, ge=1)
    optimizer: OptimizerParams = OptimizerParams(learning_rate=3e-3, warmup_steps=50)

    @field_validator("splits")
    @classmethod
    def _not_held_out(cls, splits: tuple[Split, ...]) -> tuple[Split, ...]:
        if held_out := set(splits) - {Split.PRETRAIN, Split.TRAIN}:
            raise ValueError(f"{min(held_out)} is held out: nothing is trained on it")
        return splits

    def work(self) -> float:
        return self.steps * self.rows_per_step


STAGE = Declaration(
    name="base",
    version=2,
    params=BaseParams,
    inputs={"prompts": dataset("prompts/1"), "domain": FILES, "tokenizer": FILES},
    outputs={"checkpoint": CHECKPOINT},
)
