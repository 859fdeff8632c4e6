"""`python -m stages.sampling.ask`: sample a checkpoint on one question; JSON on stdin, JSON on stdout.

A process of its own, because the command line that asks does not import torch. A question that is a prompt of
the domain gets verdicts; any other is put into the messages that the domain's prompts have.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.engines.params import EngineParams, Sampling
from stages.errors import ExitCode, PosttrainError, UsageError
from stages.spec import Runtime

if TYPE_CHECKING:
    from stages.domains.sql.domain import SqlDomain

SHOWN_ROWS = 5


class Question(BaseModel):
    """`checkpoint`, `prompts` and `domain` are folders."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: Path
    prompts: Path
    domain: Path
    text: str
    n: int
    seed: int = 0
    sampling: Sampling = Sampling()
    engine: EngineParams = EngineParams()
    runtime: Runtime = Runtime()


class Sample(BaseModel):
    """One completion. `reward` and `unscorable` are None for a question that the domain does not know.

    `rows` are the first of what a query returns on the domain's database; `refused` says why there are none.
    """

    model_config = ConfigDict(extra="forbid")

    text: str
    stop_reason: str
    logprob: float
    reward: float | None = None
    unscorable: str | None = None
    reading: str | None = None
    signature: str | None = None
    rows: list[list[Any]] = []
    refused: str = ""


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompt_id: str | None
    samples: list[Sample]


class Refusal(BaseModel):
    """What stands on stdout in place of an answer."""

    error: str


def ask(question: Question) -> Answer:
    """Raises UsageError if the domain cannot be opened or has no prompts at all."""
    from stages.domains.pool import VerifierPool
    from stages.domains.registry import open_domain
    from stages.domains.sql.domain import SqlDomain
    from stages.engines.chat import answer_text, open_tokenizer, prompt_ids
    from stages.engines.hf import open_engine

    domain = open_domain(question.domain)
    known, messages = _messages(question)
    tokenizer = open_tokenizer(question.checkpoint)
    engine = open_engine(question.checkpoint, question.engine, question.runtime)
    rollouts = engine.generate(
        [prompt_ids(tokenizer, messages)], question.n, question.sampling, question.seed
    )
    samples = [
        Sample(
            text=answer_text(tokenizer, rollout.completion_ids),
            stop_reason=rollout.stop_reason,
            logprob=sum(rollout.logprobs),
        )
        for rollout in rollouts
    ]
    runtime = question.runtime
    if known is not None:
        with VerifierPool(question.domain, 1, runtime.verifier_deadline_s) as pool:
            judged = pool.judge([known.prompt] * len(samples), [sample.text for sample in samples])
        for sample, judgement in zip(samples, judged, strict=True):
            sample.reward, sample.unscorable = judgement.verdict.reward, judgement.verdict.unscorable
            sample.reading, sample.signature = judgement.verdict.reading, judgement.signature
    if isinstance(domain, SqlDomain):
        _execute(domain, samples)
    return Answer(prompt_id=known.prompt.id if known else None, samples=samples)


def _messages(question: Question) -> tuple[PromptRow | None, list[Any]]:
    first: PromptRow | None = None
    for split in Split:
        try:
            rows = read_prompts(question.prompts, split)
        except UsageError:  # the prompts have none of this split
            continue
        first = first or rows[0]
        for row in rows:
            if row.prompt.text == question.text:
                return row, list(row.messages)
    if first is None:
        raise UsageError("the model's prompts are empty: there is no message to put the question into")
    return None, list(first.messages_about(question.text))


def _execute(domain: "SqlDomain", samples: list[Sample]) -> None:
    """What each query returns, under the verifier's own limits."""
    from stages.domains.sql.answer import extract_sql
    from stages.domains.sql.database import MAIN
    from stages.domains.sql.sandbox import Refused, Sandbox

    params = domain.params
    database = Sandbox(domain.folder / MAIN, params.vm_steps, params.max_sql_chars)
    for sample in samples:
        try:
            found = database.query(extract_sql(sample.text), params.row_cap)
        except Refused as refused:
            sample.refused = str(refused)
            continue
        sample.rows = [list(row) for row in found[:SHOWN_ROWS]]


def main() -> int:
    try:
        answer = ask(Question.model_validate_json(sys.stdin.buffer.read()))
    except PosttrainError as error:
        print(Refusal(error=str(error)).model_dump_json())
        return int(error.exit_code)
    print(answer.model_dump_json())
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
