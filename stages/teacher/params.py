"""The teacher of on-policy distillation: somewhat larger, of the same tokenizer, trained on clean rows.

It knows the post-training prompts as well: a teacher that knows less than its student teaches nothing.
"""

from typing import ClassVar

from pydantic import Field

from data_contracts.values import Split
from stages.base.params import BaseParams, Mixture
from stages.declaration import CHECKPOINT, FILES, Declaration, dataset
from stages.engines.params import ModelShape


class TeacherParams(BaseParams):
    expected_seconds: ClassVar[float | None] = 150

    shape: ModelShape = ModelShape(hidden=160, intermediate=448)
    mixture: Mixture = Mixture(wrong_share=0.0, strategy_skew=0.8)
    splits: tuple[Split, ...] = (Split.PRETRAIN, Split.TRAIN)
    steps: int = Field(650, ge=1)


STAGE = Declaration(
    name="teacher",
    version=2,
    params=TeacherParams,
    inputs={"prompts": dataset("prompts/1"), "domain": FILES, "tokenizer": FILES},
    outputs={"checkpoint": CHECKPOINT},
)
