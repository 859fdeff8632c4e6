"""What a stage declares about itself: its parameters, its version, what it reads and what it writes.

Torch-free, so that a plan is made without importing the work. `version` is bumped by hand when a stage's
behaviour changes: it is the code's part of the key under which results are stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class StageParams(BaseModel):
    """Parameters that affect the result; all of them enter the key. The defaults are the vetted setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0


class Kind(StrEnum):
    DATASET = "dataset"  # an Arrow folder under a contract
    CHECKPOINT = "checkpoint"  # a Hugging Face folder under the checkpoint contract
    FILES = "files"  # any other folder, digested file by file


@dataclass(frozen=True)
class Artefact:
    kind: Kind
    contract: str | None = None


def dataset(contract: str) -> Artefact:
    return Artefact(Kind.DATASET, contract)


CHECKPOINT = Artefact(Kind.CHECKPOINT)
FILES = Artefact(Kind.FILES)


@dataclass(frozen=True)
class Declaration:
    """A stage as `tasks` sees it; `stages.<name>.stage.run` does the work.

    `inputs` may be given or not by a flow unless they are in `required`.
    """

    name: str
    version: int
    params: type[StageParams]
    inputs: Mapping[str, Artefact]
    outputs: Mapping[str, Artefact]
    optional: frozenset[str] = frozenset()


def declaration(stage: str) -> Declaration:
    """The declaration of the stage in `stages/<stage>/params.py`.

    Raises UsageError if there is no such stage.
    """
    import importlib

    from stages.errors import UsageError

    try:
        module = importlib.import_module(f"stages.{stage}.params")
    except ModuleNotFoundError as error:
        raise UsageError(f"there is no stage {stage!r}: expected a folder stages/{stage}") from error
    found: Declaration = module.STAGE
    return found
