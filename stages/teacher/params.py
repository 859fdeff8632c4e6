"""The teacher of on-policy distillation: somewhat larger, of the same tokenizer, trained on clean rows."""

from typing import ClassVar

from pydantic import Field

from stages.base.params import BaseParams, Mixture
from stages.declaration import CHECKPOINT, FILES, Declaration, dataset
from stages.engines.params import ModelShape


class TeacherParams(BaseParams):
    expected_seconds: ClassVar[float | None] = 150

    shape: ModelShape = ModelShape(hidden=160, intermediate=448)
    mixture: Mixture = Mixture(wrong_share=0.0, strategy_skew=0.8)
    steps: int = Field(500, ge=1)


STAGE = Declaration(
    name="teacher",
    version=1,
    params=TeacherParams,
    inputs={"prompts": dataset("prompts/1"), "domain": FILES, "tokenizer": FILES},
    outputs={"checkpoint": CHECKPOINT},
)
