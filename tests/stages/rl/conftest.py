"""Archives written by hand, and judged groups of a genuine model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from letters_domain import Letters

from data_contracts.checkpoint import tensor_digest, tokenizer_digest
from data_contracts.dataset import DatasetWriter
from stages.domains.pool import Judgement
from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.engines.chat import answer_ids, answer_text, prompt_ids
from stages.engines.hf import open_engine
from stages.engines.params import EngineParams, OptimizerParams, Sampling, Schedule
from stages.estimators.params import UniformReplay
from stages.rl.params import PreflightParams, RlParams
from stages.sampling.judged import Judged
from stages.spec import Runtime

LETTERS = Letters(Path())


@pytest.fixture(scope="session")
def rl_params():
    """Parameters of a small run with changes; `coefficient` is replay's."""

    def params(coefficient: float = 0.2, elites_per_step: int = 6, **changes: Any) -> RlParams:
        return RlParams(
            **{
                "replay": UniformReplay(coefficient=coefficient, elites_per_step=elites_per_step),
                "steps": 4,
                "prompts_per_step": 4,
                "group_size": 8,
                "preflight": PreflightParams(max_truncated=1, max_zero_variance=1),
                "sampling": Sampling(max_new_tokens=8),
                "optimizer": OptimizerParams(learning_rate=1e-2, warmup_steps=0, schedule=Schedule.CONSTANT),
                **changes,
            },
        )

    return params


@pytest.fixture(scope="session")
def write_archive(world, base):
    """Writes elites (prompt row, text); `changes` are of every row."""

    def write(name: str, elites: Sequence[tuple[PromptRow, str]], **changes: Any) -> Path:
        rows = [
            {
                "prompt_id": row.prompt.id,
                "capability": row.prompt.capability,
                "prompt_ids": prompt_ids(world.tokenizer, row.messages),
                "completion_ids": answer_ids(world.tokenizer, text),
                "logprobs": [-0.5] * len(answer_ids(world.tokenizer, text)),
                "temperature": 1.0,
                "text": text,
                "signature": LETTERS.signature(row.prompt, text),
                "reading": "small",
                "reward": 1.0,
                "base_logprob": -1.0,
                "count": 1,
                "base_digest": tensor_digest(base),
                "rl_steps": 0,
                "signature_version": LETTERS.signature_version,
                **changes,
            }
            for row, text in elites
        ]
        metadata = {"posttrain.tokenizer": tokenizer_digest(base)}
        with DatasetWriter(world.root / name, "elite_archive/1", metadata) as writer:
            writer.write(rows)
        return world.root / name

    return write


@pytest.fixture(scope="session")
def train_rows(world) -> list[PromptRow]:
    return read_prompts(world.prompts, Split.TRAIN)


@pytest.fixture(scope="session")
def single_elites(write_archive, train_rows) -> Path:
    """An archive in which no prompt has two strategies."""
    return write_archive("single", [(row, row.prompt.payload["value"]) for row in train_rows[:5]])


@pytest.fixture(scope="session")
def sample(world, base):
    """Groups of the base model, judged in this process."""

    def groups(
        rows: Sequence[PromptRow], n: int, sampling: Sampling, seed: int, head: int = 0
    ) -> list[list[Judged]]:
        engine = open_engine(base, EngineParams(), Runtime(threads=1))
        prompts = [prompt_ids(world.tokenizer, row.messages) for row in rows]
        judged: list[list[Judged]] = [[] for _ in rows]
        for rollout in engine.generate(prompts, n, sampling, seed, head):
            place, row = rollout.prompt_index, rows[rollout.prompt_index]
            text = answer_text(world.tokenizer, rollout.completion_ids)
            verdict = LETTERS.verify([row.prompt], [text])[0]
            signature = LETTERS.signature(row.prompt, text) if verdict.reward else None
            judgement = Judgement(verdict, signature)
            judged[place].append(Judged(row, prompts[place], len(judged[place]), rollout, text, judgement))
        return judged

    return groups


@pytest.fixture
def trained(world, base, archived, tmp_path):
    """Runs the stage in a folder of its own; returns the attempt and its notices."""
    from stages.rl.stage import run

    def train(name: str, params: RlParams, runtime=None, **inputs):
        given = {"policy": base, "archive": archived.out("archive"), **inputs}
        attempt = world.attempt(tmp_path / name, params, runtime, **given)
        ctx = attempt.context()
        run(ctx)
        return attempt, ctx.notices

    return train
