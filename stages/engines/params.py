"""Choices of engine, sampling, model shape and optimizer; torch-free. All of them affect results."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Choice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sampling(_Choice):
    """The distribution that samples; recorded with every rollout, because a ratio is taken against it."""

    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, description="0 keeps the whole vocabulary")
    max_new_tokens: int = Field(96, ge=1)

    @property
    def full_support(self) -> bool:
        return self.top_p == 1.0 and self.top_k == 0


class EngineParams(_Choice):
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_logprob_gap: float = Field(
        1e-3,
        gt=0,
        description="mean |trainer - engine| log-prob of sampled tokens above which a step is refused",
    )


class Schedule(StrEnum):
    CONSTANT = "constant"
    COSINE = "cosine"  # to a tenth of the peak


class OptimizerParams(_Choice):
    """AdamW with a linear warm-up; every stage starts with fresh moments."""

    learning_rate: float = Field(1e-3, gt=0)
    warmup_steps: int = Field(20, ge=0)
    schedule: Schedule = Schedule.COSINE
    weight_decay: float = Field(0.0, ge=0)
    beta2: float = Field(0.98, gt=0, lt=1)
    clip_norm: float = Field(1.0, gt=0)


class ValueHeadParams(_Choice):
    """A linear critic on the model's last hidden states."""

    learning_rate: float = Field(1e-3, gt=0)


class ModelShape(_Choice):
    """A Llama to be trained from random weights; the embedding is tied to the output."""

    hidden: int = Field(128, ge=8)
    layers: int = Field(4, ge=1)
    heads: int = Field(4, ge=1)
    intermediate: int = Field(352, ge=8)
    max_positions: int = Field(256, ge=16)

    @model_validator(mode="after")
    def _heads_divide(self) -> "ModelShape":
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} must be a multiple of heads {self.heads}")
        return self
