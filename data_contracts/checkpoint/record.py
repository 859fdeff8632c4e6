"""`training_record.json`: what a checkpoint has been through, carried inside its folder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from data_contracts.checkpoint.files import breach, read_json
from data_contracts.checkpoint.tensors import tensor_digest
from data_contracts.durable import write_atomic

FILE = "training_record.json"


@dataclass(frozen=True)
class StageRecord:
    stage: str
    steps: int


@dataclass(frozen=True)
class TrainingRecord:
    """`stages` in order; `rl_steps` is their RL part.

    `base_digest` is the tensor digest of the base that they began from, "" for the base itself.
    """

    stages: tuple[StageRecord, ...] = ()
    rl_steps: int = 0
    base_digest: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "stages": [asdict(stage) for stage in self.stages]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Raises ContractBreach for an unknown or missing key and for a value of another type."""
        _exactly(found, {"stages": list, "rl_steps": int, "base_digest": str})
        for stage in found["stages"]:
            if not isinstance(stage, dict):
                raise breach("stages of JSON objects", repr(stage), FILE)
            _exactly(stage, {"stage": str, "steps": int})
        if found["rl_steps"] < 0:
            raise breach("rl_steps at least 0", str(found["rl_steps"]), FILE)
        stages = tuple(StageRecord(stage["stage"], stage["steps"]) for stage in found["stages"])
        return cls(stages, found["rl_steps"], found["base_digest"])


def _exactly(found: dict[str, Any], types: dict[str, type]) -> None:
    if found.keys() != types.keys():
        raise breach(f"keys {sorted(types)}", f"found {sorted(found)}", FILE)
    for key, type_ in types.items():
        if not isinstance(found[key], type_) or isinstance(found[key], bool):
            raise breach(f"{key} of type {type_.__name__}", f"found {found[key]!r}", FILE)


def read_record(folder: Path) -> TrainingRecord:
    """Raises ContractBreach if the checkpoint has no record or an unreadable one."""
    return TrainingRecord.from_json(read_json(folder / FILE))


def write_record(folder: Path, record: TrainingRecord) -> None:
    """Whole or not at all."""
    write_atomic(folder / FILE, json.dumps(record.to_json(), indent=1) + "\n")


def record_after(parent: Path, stage: str, steps: int, *, rl_steps: int = 0) -> TrainingRecord:
    """The record of a checkpoint that `stage` trained from the checkpoint in `parent`."""
    record = read_record(parent)
    return TrainingRecord(
        stages=(*record.stages, StageRecord(stage, steps)),
        rl_steps=record.rl_steps + rl_steps,
        base_digest=record.base_digest or tensor_digest(parent),
    )
