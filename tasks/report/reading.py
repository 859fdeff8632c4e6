"""What to read: the strategies of a few prompts before and after, and single rollouts with their verdicts."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from tasks.report.material import Material
from tasks.store.manifest import Manifest

SHOWN_PROMPTS = 6
SHOWN_AMBIGUOUS = 3
SHOWN_STRATEGIES = 8
SHOWN_ROLLOUTS = 4
COLUMNS = ["prompt_id", "capability", "reward", "unscorable", "reading", "signature", "text", "stop_reason"]
WORD = re.compile(r"\b[A-Z]{2,}\b")
Row = dict[str, Any]


@dataclass(frozen=True)
class Strategy:
    """How often each side came to it, out of `n` scorable samples, with one answer as an example."""

    signature: str
    reading: str
    example: Markup
    before: int
    after: int


@dataclass(frozen=True)
class PromptStrategies:
    prompt_id: str
    question: str
    capability: str
    ambiguity: str
    n_before: int
    n_after: int
    distinct_before: int
    distinct_after: int
    strategies: list[Strategy]
    left_out: int


@dataclass(frozen=True)
class Rollout:
    question: str
    capability: str
    text: Markup
    verdict: str  # right, wrong, unscorable
    detail: str


def code(text: str) -> Markup:
    """Escaped, with words in capitals (the keywords of SQL) set apart."""
    parts, last = [], 0
    for match in WORD.finditer(text):
        parts += [escape(text[last : match.start()]), Markup("<b>"), escape(match[0]), Markup("</b>")]
        last = match.end()
    return Markup("").join([*parts, escape(text[last:])])


def samples(material: Material, manifest: Manifest) -> dict[str, list[Row]]:
    """The rollouts of an evaluation by prompt."""
    from data_contracts.dataset import read

    folder = material.folder(manifest, "samples")
    found: dict[str, list[Row]] = {}
    if folder is not None:
        for row in read(folder, "rollouts/1", columns=COLUMNS).to_pylist():
            found.setdefault(row["prompt_id"], []).append(row)
    return found


def strategies(material: Material) -> tuple[str, str, list[PromptStrategies]]:
    """(before, after, prompts): the first and last evaluated checkpoint; ambiguous questions and the largest
    changes of width first. Empty until two checkpoints were measured."""
    names = list(material.evaluations)
    if len(names) < 2:
        return "", "", []
    first, last = (samples(material, material.evaluations[name]) for name in (names[0], names[-1]))
    found = [
        _compare(*material.questions.get(prompt, (prompt, "")), first[prompt], last[prompt])
        for prompt in first
        if prompt in last
    ]
    found = [item for item in found if item.strategies]
    found.sort(key=lambda item: (-abs(item.distinct_after - item.distinct_before), item.prompt_id))
    ambiguous = [item for item in found if item.ambiguity][:SHOWN_AMBIGUOUS]
    others = [item for item in found if item not in ambiguous]
    return names[0], names[-1], [*ambiguous, *others][:SHOWN_PROMPTS]


def _compare(question: str, ambiguity: str, before: list[Row], after: list[Row]) -> PromptStrategies:
    counts = [Counter(_name(row) for row in rows if row["reward"] == 1) for rows in (before, after)]
    examples: dict[str, Row] = {}
    for row in [*before, *after]:
        if row["reward"] == 1:
            held = examples.setdefault(_name(row), row)
            if len(row["text"]) < len(held["text"]):
                examples[_name(row)] = row
    order = sorted(examples, key=lambda name: (-(counts[0][name] + counts[1][name]), name))
    shown = [
        Strategy(
            signature=name,
            reading=examples[name]["reading"] or "",
            example=code(examples[name]["text"]),
            before=counts[0][name],
            after=counts[1][name],
        )
        for name in order[:SHOWN_STRATEGIES]
    ]
    return PromptStrategies(
        prompt_id=before[0]["prompt_id"],
        question=question,
        capability=before[0]["capability"],
        ambiguity=ambiguity,
        n_before=sum(row["reward"] is not None for row in before),
        n_after=sum(row["reward"] is not None for row in after),
        distinct_before=len(counts[0]),
        distinct_after=len(counts[1]),
        strategies=shown,
        left_out=max(0, len(order) - SHOWN_STRATEGIES),
    )


def _name(row: Row) -> str:
    return row["signature"] or "unsigned"


def rollouts(material: Material) -> tuple[str, dict[str, list[Rollout]]]:
    """(checkpoint, by verdict): a few of the last evaluated checkpoint, of different prompts."""
    if not material.evaluations:
        return "", {}
    name = list(material.evaluations)[-1]
    found: dict[str, list[Rollout]] = {"right": [], "wrong": [], "unscorable": []}
    for prompt, rows in samples(material, material.evaluations[name]).items():
        for verdict, shown in found.items():
            row = next((row for row in rows if _verdict(row) == verdict), None)
            if row is not None and len(shown) < SHOWN_ROLLOUTS and _fresh(row, shown):
                question, _ = material.questions.get(prompt, (prompt, ""))
                detail = row["unscorable"] or (
                    "cut at the length limit" if row["stop_reason"] == "length" else ""
                )
                shown.append(Rollout(question, row["capability"], code(row["text"]), verdict, detail))
    return name, found


def _fresh(row: Row, shown: list[Rollout]) -> bool:
    """Another capability than those shown, so that a page is not four times the same."""
    return row["capability"] not in {rollout.capability for rollout in shown}


def _verdict(row: Row) -> str:
    if row["reward"] is None:
        return "unscorable"
    return "right" if row["reward"] == 1 else "wrong"
