"""Rollouts with their verdicts: sampled in groups, judged once, and written as rollouts/1."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from data_contracts.values import StopReason
from stages.domains.pool import Judgement, VerifierPool
from stages.domains.prompt_table import PromptRow
from stages.domains.protocol import Verdict
from stages.engines.chat import answer_text, prompt_ids
from stages.engines.params import Sampling
from stages.engines.protocol import Rollout, RolloutEngine

CUT = Judgement(Verdict(reward=0.0), None)
"""A completion that was cut at max_new_tokens has not answered, whatever its text so far: it is wrong."""


@dataclass(frozen=True)
class Judged:
    """One completion of `row` with its verdict; `sample` is its place in the group."""

    row: PromptRow
    prompt_ids: list[int]
    sample: int
    rollout: Rollout
    text: str
    judgement: Judgement

    @property
    def correct(self) -> bool:
        return self.judgement.verdict.reward == 1.0

    @property
    def scorable(self) -> bool:
        return self.judgement.verdict.reward is not None

    @property
    def truncated(self) -> bool:
        return self.rollout.stop_reason is StopReason.LENGTH


def sample_groups(
    engine: RolloutEngine,
    tokenizer: Any,
    pool: VerifierPool,
    rows: Sequence[PromptRow],
    n: int,
    sampling: Sampling,
    seed: int,
    head: int = 0,
) -> list[list[Judged]]:
    """One group of `n` judged completions per row, in the rows' order; `head` as in the engine's protocol."""
    prompts = [prompt_ids(tokenizer, row.messages) for row in rows]
    rollouts = engine.generate(prompts, n, sampling, seed, head)
    texts = [answer_text(tokenizer, rollout.completion_ids) for rollout in rollouts]
    ended = [place for place, rollout in enumerate(rollouts) if rollout.stop_reason is StopReason.EOS]
    judgements = [CUT] * len(rollouts)
    verdicts = pool.judge(
        [rows[rollouts[place].prompt_index].prompt for place in ended], [texts[place] for place in ended]
    )
    for place, judgement in zip(ended, verdicts, strict=True):
        judgements[place] = judgement
    judged = [
        Judged(rows[rollout.prompt_index], prompts[rollout.prompt_index], place % n, rollout, text, judgement)
        for place, (rollout, text, judgement) in enumerate(zip(rollouts, texts, judgements, strict=True))
    ]
    return [judged[start : start + n] for start in range(0, len(judged), n)]


def rewards_PG(groups: Sequence[Sequence[Judged]]) -> tuple[Tensor, Tensor]:
    """Rewards and which of them are verdicts, [P, G]; an unscorable sample holds a 0 that nobody reads."""
    rewards = [[sample.judgement.verdict.reward or 0.0 for sample in group] for group in groups]
    scorable = [[sample.scorable for sample in group] for group in groups]
    return torch.tensor(rewards), torch.tensor(scorable)


def strategies(group: Sequence[Judged]) -> set[str]:
    """The distinct signatures of a group's correct samples."""
    return {sample.judgement.signature for sample in group if sample.correct and sample.judgement.signature}


def rollout_rows(groups: Sequence[Sequence[Judged]], step: int) -> list[dict[str, Any]]:
    """Rows of rollouts/1. A group's id names the step, the place in it and the prompt.

    The place, because where an epoch ends a step may take a prompt twice.
    """
    return [
        {
            "prompt_id": sample.row.prompt.id,
            "group_id": f"{step}/{place}/{sample.row.prompt.id}",
            "sample": sample.sample,
            "capability": sample.row.prompt.capability,
            "prompt_ids": sample.prompt_ids,
            "completion_ids": sample.rollout.completion_ids,
            "logprobs": sample.rollout.logprobs,
            **_head_columns(sample.rollout),
            "weight_version": [sample.rollout.weight_version] * len(sample.rollout.completion_ids),
            "temperature": sample.rollout.sampling.temperature,
            "top_p": sample.rollout.sampling.top_p,
            "top_k": sample.rollout.sampling.top_k,
            "stop_reason": sample.rollout.stop_reason,
            "reward": sample.judgement.verdict.reward,
            "unscorable": sample.judgement.verdict.unscorable,
            "reading": sample.judgement.verdict.reading,
            "signature": sample.judgement.signature,
            "text": sample.text,
            "step": step,
        }
        for place, group in enumerate(groups)
        for sample in group
    ]


def _head_columns(rollout: Rollout) -> dict[str, Any]:
    """The sampler's head, flat and row by row; empty where none was recorded."""
    ids, logprobs = rollout.head_ids or [], rollout.head_logprobs or []
    return {
        "head_size": len(ids[0]) if ids else 0,
        "head_ids": list(chain.from_iterable(ids)),
        "head_logprobs": list(chain.from_iterable(logprobs)),
    }
