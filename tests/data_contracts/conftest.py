"""Rows that keep each contract; a test breaks one thing."""

from collections.abc import Callable
from typing import Any

import pytest

TOKENIZER = "sha256:" + "a" * 64
Rows = list[dict[str, Any]]


@pytest.fixture
def rollouts() -> Callable[..., Rows]:
    def make(groups: int = 3, size: int = 4) -> Rows:
        return [
            {
                "prompt_id": f"p{group}",
                "group_id": f"0/p{group}",
                "sample": sample,
                "capability": "count",
                "prompt_ids": [1, 2, 3],
                "completion_ids": [4, 5 + sample],
                "logprobs": [-0.5, -1.25],
                "head_size": 1,
                "head_ids": [4, 5],
                "head_logprobs": [-0.5, -0.25],
                "weight_version": [7, 7],
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": 0,
                "stop_reason": "eos",
                "reward": float(sample % 2),
                "unscorable": None,
                "reading": "a",
                "signature": f"s{sample}",
                "text": f"text {group} {sample}",
                "step": 0,
            }
            for group in range(groups)
            for sample in range(size)
        ]

    return make


@pytest.fixture
def rows_of(rollouts: Callable[..., Rows]) -> dict[str, Rows]:
    """Two or more good rows of every contract."""
    prompts = [
        {
            "id": f"p{number}",
            "domain": "sql",
            "capability": f"family-{number % 2}",
            "text": f"question {number}",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "payload": "{}",
            "split": split,
            "answer_class": "open",
            "ambiguity": "T" if number == 1 else "",
            "readings": 2 if number == 1 else 1,
        }
        for number, split in enumerate(["train", "train", "validation", "test-values"])
    ]
    elites = [
        {
            "prompt_id": "p0",
            "capability": "count",
            "prompt_ids": [1],
            "completion_ids": [2, 3],
            "text": "x",
            "signature": signature,
            "reading": "a",
            "reward": 1.0,
            "logprobs": [-1.5, -2.0],
            "temperature": 1.0,
            "base_logprob": -3.5,
            "count": 2,
            "base_digest": TOKENIZER,
            "rl_steps": 0,
            "signature_version": "1",
        }
        for signature in ("join", "subquery")
    ]
    examples = [
        {"prompt_id": f"p{n}", "capability": f"c{n}", "tokens": [1, 2, 3], "loss_mask": [0, 1, 1]}
        for n in range(2)
    ]
    evaluation = [
        {
            "prompt_id": prompt,
            "capability": "count",
            "split": "test-values",
            "ambiguity": ambiguity,
            "k": k,
            "n": 4,
            "correct": 2,
            "unscorable": 0,
            "strategies": 2,
            "pass_at_k": passed,
            "distinct_at_k": distinct,
            "both_at_k": both,
        }
        for prompt, ambiguity in (("p0", ""), ("p1", "T"))
        for k, passed, distinct, both in (
            (1, 0.5, 0.5, 0.0 if ambiguity else None),
            (2, 1 - 1 / 6, 1.0, 1 / 6 if ambiguity else None),
        )
    ]
    return {
        "prompts/1": prompts,
        "rollouts/1": rollouts(),
        "elite_archive/1": elites,
        "sft_examples/1": examples,
        "evaluation/1": evaluation,
    }
