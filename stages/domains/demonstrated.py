"""Domains that can show answers besides judging them: references for SFT, demonstrations for pre-training.

A user's domain needs neither; a stage that does says so in one sentence.
"""

import random
from pathlib import Path
from typing import Protocol, runtime_checkable

from stages.domains.protocol import Domain, Prompt
from stages.domains.registry import domain_name, open_domain
from stages.errors import UsageError


@runtime_checkable
class ReferencedDomain(Protocol):
    def reference(self, prompt: Prompt) -> str:
        """The one right answer that a data set would carry for this prompt."""
        ...


@runtime_checkable
class DemonstratedDomain(Protocol):
    def strategies(self, prompt: Prompt) -> dict[str, list[str]]:
        """Per reading of the prompt, its right answers, one per strategy."""
        ...

    def randomise_slot(self, prompt: Prompt, answers: list[str], rng: random.Random) -> tuple[str, list[str]]:
        """The prompt's text and answers with the slot's value replaced by a random token string."""
        ...

    def corrupt(self, answer: str, rng: random.Random) -> str:
        """A plausible wrong answer."""
        ...


def open_referenced(folder: Path) -> ReferencedDomain:
    """Raises UsageError if the domain has no reference answers."""
    domain: Domain | ReferencedDomain = open_domain(folder)
    if not isinstance(domain, ReferencedDomain):
        raise UsageError(
            f"domain {domain_name(folder)!r} has no reference(prompt): SFT needs one, or leave the stage out"
        )
    return domain


def open_demonstrated(folder: Path) -> DemonstratedDomain:
    """Raises UsageError if the domain cannot show right and wrong answers."""
    domain: Domain | DemonstratedDomain = open_domain(folder)
    if not isinstance(domain, DemonstratedDomain):
        raise UsageError(
            f"domain {domain_name(folder)!r} has no strategies, randomise_slot and corrupt to pre-train on: "
            "set `model` and `teacher` to checkpoints instead"
        )
    return domain
