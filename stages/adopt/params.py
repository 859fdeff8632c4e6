"""A checkpoint that somebody brings: a local folder or a hub id becomes an artefact of the store."""

from typing import ClassVar

from pydantic import Field

from stages.declaration import CHECKPOINT, Declaration, StageParams


class AdoptParams(StageParams):
    expected_seconds: ClassVar[float | None] = 20

    source: str = Field(min_length=1, description="a local Hugging Face folder, or a hub id")
    content: str = Field("", description="digest of a local folder, so that changed weights make a new key")
    rl_steps: int = Field(0, ge=0, description="steps of RL that the model has behind it, as its maker says")


STAGE = Declaration(
    name="adopt", version=1, params=AdoptParams, inputs={}, outputs={"checkpoint": CHECKPOINT}
)
