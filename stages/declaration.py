"""What a stage declares about itself: its parameters, its version, what it reads and what it writes.

Torch-free, so that a plan is made without importing the work. `version` is bumped by hand when a stage's
behaviour changes: it is the code's part of the key under which results are stored.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from stages.errors import UsageError


class StageParams(BaseModel):
    """Parameters that affect the result; all of them enter the key. The defaults are the vetted setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expected_seconds: ClassVar[float | None] = None
    """Of the defaults on two cores, for the estimate of a plan."""

    def work(self) -> float:
        """What the time grows with, in any unit: an estimate is scaled by the ratio of two of these."""
        return 1.0


class SeededParams(StageParams):
    """Parameters of a stage that draws something; its streams come from `StageContext.seed`."""

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
class ForeignCode:
    """Code that decides a result and has a version of its own, such as a domain's verifier.

    `versions` enter the key; `modules` are watched, so that a plan can warn of a change without a version.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()


def no_foreign_code(params: StageParams) -> ForeignCode:
    return ForeignCode()


@dataclass(frozen=True)
class Declaration:
    """A stage as `tasks` sees it; `stages.<name>.stage.run` does the work.

    A flow gives every one of `inputs`, but may leave out those in `optional`. `foreign_code` names the code
    from outside of the stage that these parameters bring in.
    """

    name: str
    version: int
    params: type[StageParams]
    inputs: Mapping[str, Artefact]
    outputs: Mapping[str, Artefact]
    optional: frozenset[str] = frozenset()
    foreign_code: Callable[[Any], ForeignCode] = no_foreign_code


def stage_package(stage: str) -> str:
    """The package of a stage: `stages.<name>`, or the dotted name itself for a user's own stage."""
    return stage if "." in stage else f"stages.{stage}"


def declaration(stage: str) -> Declaration:
    """The declaration (`STAGE`) in the stage's `params.py`.

    `stage` is the name of a folder in `stages/`, or the dotted name of any importable package with a
    `params.py` and a `stage.py`: so users bring stages of their own. Raises UsageError if there is none.
    """
    package = stage_package(stage)
    try:
        module = importlib.import_module(f"{package}.params")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{package}.params".startswith(error.name):
            raise  # the stage is there, something that it imports is not
        raise UsageError(f"there is no stage {stage!r}: no package {package} with a params.py") from error
    found: Declaration = module.STAGE
    if found.name != stage:
        raise UsageError(f"{package}/params.py declares the name {found.name!r}; it must be {stage!r}")
    return found


def declaration_of(params: StageParams) -> Declaration:
    """The declaration of the stage whose parameters these are, found by the module of their class."""
    package = type(params).__module__.removesuffix(".params")
    return declaration(package.removeprefix("stages."))
