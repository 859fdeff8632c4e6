"""Supervised fine-tuning on one reference answer per question, as real data sets have: a short cold start."""

from typing import ClassVar

from pydantic import Field

from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.engines.params import OptimizerParams


class SftParams(SeededParams):
    expected_seconds: ClassVar[float | None] = 20

    steps: int = Field(24, ge=1)
    rows_per_step: int = Field(32, ge=1)
    optimizer: OptimizerParams = OptimizerParams(learning_rate=3e-4, warmup_steps=4)

    def work(self) -> float:
        return self.steps * self.rows_per_step


STAGE = Declaration(
    name="sft",
    version=2,
    params=SftParams,
    inputs={"policy": CHECKPOINT, "prompts": dataset("prompts/1"), "domain": FILES},
    outputs={"checkpoint": CHECKPOINT, "examples": dataset("sft_examples/1")},
)
