"""What the samples of one prompt add up to, and its rows of evaluation/1."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from stages.domains.prompt_table import PromptRow
from stages.errors import GuardError
from stages.estimators.coverage import both_at_k, distinct_at_k, pass_at_k

if TYPE_CHECKING:
    from stages.sampling.judged import Judged

UNSIGNED = ""  # correct samples whose strategy could not be told; together they count as one strategy


class Tally(BaseModel):
    """Counts over the completions of one prompt. Strategies and readings are of correct ones only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_id: str
    capability: str
    split: str
    ambiguity: str
    samples: int
    tokens: int
    stop_reasons: dict[str, int]
    unscorable: dict[str, int]
    strategies: dict[str, int]
    readings: dict[str, int]

    @property
    def scorable(self) -> int:
        return self.samples - sum(self.unscorable.values())

    @property
    def correct(self) -> int:
        return sum(self.strategies.values())


def tally(row: PromptRow, group: "Sequence[Judged]") -> Tally:
    """Raises GuardError if an ambiguous prompt's correct answers have more than two readings, or none."""
    correct = [sample.judgement for sample in group if sample.correct]
    readings = Counter(judgement.verdict.reading or "" for judgement in correct)
    if row.ambiguity and ("" in readings or len(readings) > 2):
        raise GuardError(
            f"prompt {row.prompt.id} is ambiguous, so the verifier must say which of two readings a correct "
            f"answer meets; it said {sorted(readings)}"
        )
    return Tally(
        prompt_id=row.prompt.id,
        capability=row.prompt.capability,
        split=row.prompt.split,
        ambiguity=row.ambiguity,
        samples=len(group),
        tokens=sum(len(sample.rollout.completion_ids) for sample in group),
        stop_reasons=Counter(str(sample.rollout.stop_reason) for sample in group),
        unscorable=Counter(
            str(sample.judgement.verdict.unscorable) for sample in group if not sample.scorable
        ),
        strategies=Counter(judgement.signature or UNSIGNED for judgement in correct),
        readings=readings,
    )


def evaluation_rows(found: Tally, ks: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each k that the prompt has scorable samples for; none is made up for the others."""
    counts = sorted(found.strategies.values())
    first, second, *_ = [*found.readings.values(), 0, 0]
    return [
        {
            "prompt_id": found.prompt_id,
            "capability": found.capability,
            "split": found.split,
            "ambiguity": found.ambiguity,
            "k": k,
            "n": found.samples,
            "correct": found.correct,
            "unscorable": found.samples - found.scorable,
            "strategies": len(counts),
            "pass_at_k": pass_at_k(found.scorable, found.correct, k),
            "distinct_at_k": distinct_at_k(found.scorable, counts, k),
            "both_at_k": both_at_k(found.scorable, first, second, k) if found.ambiguity else None,
        }
        for k in ks
        if k <= found.scorable
    ]
