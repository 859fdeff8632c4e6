"""The cells of the archive: which sample stands for a strategy, and how a cell is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.sampling.judged import Judged


@dataclass(frozen=True)
class Elite:
    sample: Judged
    count: int  # how often the base produced this strategy for this prompt

    @property
    def quality(self) -> tuple[float, int]:
        """Verdicts being equal (all are correct): log-prob under the base, then shortness."""
        return sum(self.sample.rollout.logprobs), -len(self.sample.rollout.completion_ids)


def better(held: Elite, sample: Judged) -> Elite:
    """The cell after another sample of its strategy."""
    challenger = Elite(sample, held.count + 1)
    return challenger if challenger.quality > held.quality else Elite(held.sample, held.count + 1)


def elite_rows(
    elites: Mapping[str, Mapping[str, Elite]], temperature: float, base_digest: str, signature_version: str
) -> list[dict[str, Any]]:
    """Rows of elite_archive/1, by prompt and then by signature."""
    return [
        {
            "prompt_id": prompt_id,
            "capability": elite.sample.row.prompt.capability,
            "prompt_ids": elite.sample.prompt_ids,
            "completion_ids": elite.sample.rollout.completion_ids,
            "text": elite.sample.text,
            "signature": signature,
            "reading": elite.sample.judgement.verdict.reading,
            "reward": elite.sample.judgement.verdict.reward,
            "logprobs": elite.sample.rollout.logprobs,
            "temperature": temperature,
            "base_logprob": sum(elite.sample.rollout.logprobs),
            "count": elite.count,
            "base_digest": base_digest,
            "rl_steps": 0,
            "signature_version": signature_version,
        }
        for prompt_id, cells in elites.items()
        for signature, elite in sorted(cells.items())
    ]
