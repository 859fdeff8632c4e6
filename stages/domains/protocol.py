"""What a task domain offers the stages: prompts, a verifier and a strategy signature. Torch-free.

A verdict is a reward or an `Unscorable` with a reason, never both: an unscorable sample must leave
every mean and denominator, so it cannot be represented as a reward of 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypedDict

from data_contracts.values import Split

__all__ = ["Domain", "Message", "Prompt", "Split", "Unscorable", "Verdict"]


class Message(TypedDict):
    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """A task. `payload` is JSON-like and is all that the verifier needs besides the domain's folder."""

    id: str
    domain: str
    capability: str  # the family: a row of the capability matrix
    text: str
    payload: dict[str, Any]
    split: Split
    answer_class: str  # "open", or "<name>:<number of possible answers>" such as "yes_no:2"


class Unscorable(StrEnum):
    """Why a sample has no reward."""

    WALL_CLOCK = "wall_clock"  # the backstop of the pool fired
    WORKER_DIED = "worker_died"  # the sample killed its worker process (memory, CPU limit, a crash)
    REFERENCE_FAILED = "reference_failed"  # the prompt's own reference is empty or does not run
    VERIFIER_ERROR = "verifier_error"  # the verifier itself raised


@dataclass(frozen=True)
class Verdict:
    """Exactly one of `reward` and `unscorable` is set; `reading` names the interpretation that was met."""

    reward: float | None = None
    unscorable: Unscorable | None = None
    reading: str | None = None

    def __post_init__(self) -> None:
        if (self.reward is None) == (self.unscorable is None):
            raise ValueError("a verdict is either a reward or unscorable with a reason")


class Domain(Protocol):
    name: str
    version: int  # bumped when verdicts or prompts change: part of provenance
    signature_version: str  # signatures of different versions are not comparable

    def prompts(self, split: Split) -> list[Prompt]: ...

    def messages(self, prompt: Prompt) -> list[Message]: ...

    def verify(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]: ...

    def signature(self, prompt: Prompt, text: str) -> str | None:
        """The strategy of a correct answer; None for an answer that is not correct."""
        ...

    def readings(self, prompt: Prompt) -> tuple[str, ...]:
        """Names of the valid interpretations of the prompt: at least one."""
        ...
