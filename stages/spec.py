"""What a stage's process is told (SPEC.json), and what it says while it works (JSONL events)."""

from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

EVENTS_FD = "POSTTRAIN_EVENTS_FD"
OWNER_PID = "POSTTRAIN_OWNER_PID"  # the process that started the stage's


class Runtime(BaseModel):
    """How a stage runs on this machine. It is recorded as provenance and does not enter the key.

    It is not without any effect: `threads`, `micro_batch_rows` and `sample_batch_rows` change the last bits
    of float sums, hence now and then a sampled token, and `verifier_deadline_s` decides which answers have no
    verdict. So a half-done stage resumes only under the values it began with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: int = Field(2, ge=1, description="torch threads of a stage's process")
    python: str | None = Field(None, description="interpreter of the stage's process; None is this one")
    save_every_s: float = Field(15.0, gt=0, description="seconds between two step checkpoints")
    micro_batch_rows: int = Field(32, ge=1, description="rows of one forward pass in training")
    sample_batch_rows: int = Field(512, ge=1, description="rows decoded together")
    verifier_workers: int = Field(1, ge=1)
    verifier_deadline_s: float = Field(10.0, gt=0, description="wall-clock backstop for one verdict")


class StageSpec(BaseModel):
    """SPEC.json: everything that the process of one stage attempt needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    node: str
    attempt: int
    params: dict[str, Any]
    runtime: Runtime
    inputs: dict[str, Path]
    work: Path
    out: Path


class EventKind(StrEnum):
    STARTED = "started"
    RESUMED = "resumed"  # step
    PROGRESS = "progress"  # step, total, unit
    METRICS = "metrics"  # step and scalars
    NOTICE = "notice"  # text: a fallback, a warning, an alarm
    FAILED = "failed"  # text: what failed, in one sentence


class Event(BaseModel):
    """One line of the event stream."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: EventKind
    step: int | None = None
    total: int | None = None
    unit: str | None = None
    text: str | None = None
    scalars: dict[str, float | int | str | None] = Field(default_factory=dict)
