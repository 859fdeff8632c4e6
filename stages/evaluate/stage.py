"""Sample a checkpoint on held-out prompts, judge the samples, and write what they cover.

A sample without a verdict leaves n, it is never a wrong one; a prompt with fewer scorable samples than k has
no estimate for that k, and a notice says how many there are.
"""

import json
from pathlib import Path

from data_contracts.dataset import DatasetWriter, read, token_metadata
from data_contracts.values import StopReason
from stages.context import StageContext
from stages.cursor import parts
from stages.domains.pool import open_pool
from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.domains.selection import choose
from stages.engines.chat import open_tokenizer
from stages.engines.hf import open_engine
from stages.errors import GuardError
from stages.evaluate.params import EvaluateParams
from stages.evaluate.summary import OVERALL, summarise
from stages.evaluate.tally import Tally, evaluation_rows, tally
from stages.part_buffer import PartBuffer
from stages.sampling.judged import rollout_rows, sample_groups


class EvaluateState:
    """What a resumed evaluation goes on from: the samples so far and what they add up to."""

    def __init__(self, work: Path) -> None:
        self.samples = PartBuffer(work / "samples", "rollouts/1")
        self.tallies: list[Tally] = []

    def save(self, folder: Path) -> None:
        self.samples.save(folder)
        (folder / "tallies.json").write_text(json.dumps([tally.model_dump() for tally in self.tallies]))

    def load(self, folder: Path) -> None:
        self.samples.load(folder)
        self.tallies = [
            Tally.model_validate(tally) for tally in json.loads((folder / "tallies.json").read_text())
        ]


def run(ctx: StageContext[EvaluateParams]) -> None:
    params, policy = ctx.params, ctx.input("policy")
    rows = prompts_to_measure(ctx)
    tokenizer = open_tokenizer(policy)
    engine = open_engine(policy, params.engine, ctx.runtime)
    state = EvaluateState(ctx.work)
    chunks = list(parts(len(rows), params.prompts_per_step))
    with open_pool(ctx) as pool:
        for step in ctx.steps(len(chunks), state, unit="parts"):
            part = [rows[index] for index in chunks[step]]
            seed = ctx.seed("samples", step)  # the same for every checkpoint that is measured like this
            groups = sample_groups(engine, tokenizer, pool, part, params.samples, params.sampling, seed)
            state.samples.append(rollout_rows(groups, 0))
            fresh = [tally(row, group) for row, group in zip(part, groups, strict=True)]
            state.tallies += fresh
            log_part(ctx, step + 1, fresh)
    write(ctx, state)


def prompts_to_measure(ctx: StageContext[EvaluateParams]) -> list[PromptRow]:
    """Depends on the seed and the prompts alone, so that all checkpoints of a run are asked the same."""
    return [
        row
        for split in Split  # not the order in which a recipe names them: it is not in the key
        if split in ctx.params.prompts
        for row in choose(
            read_prompts(ctx.input("prompts"), split), ctx.params.prompts[split], ctx.seed("prompts", split)
        )
    ]


def log_part(ctx: StageContext[EvaluateParams], step: int, tallies: list[Tally]) -> None:
    samples = sum(tally.samples for tally in tallies)
    ctx.log(
        step,
        pass_rate=sum(tally.correct for tally in tallies) / max(1, sum(tally.scorable for tally in tallies)),
        strategies=sum(len(tally.strategies) for tally in tallies) / len(tallies),
        truncated_share=sum(tally.stop_reasons.get(StopReason.LENGTH, 0) for tally in tallies) / samples,
        unscorable=samples - sum(tally.scorable for tally in tallies),
        mean_length=sum(tally.tokens for tally in tallies) / samples,
    )


def write(ctx: StageContext[EvaluateParams], state: EvaluateState) -> None:
    params, policy = ctx.params, ctx.input("policy")
    rows = [row for tally in state.tallies for row in evaluation_rows(tally, params.ks)]
    if not rows:
        raise GuardError(
            "no sample of any prompt has a verdict: see the reasons in the notices and in the log"
        )
    all_prompts = read(ctx.input("prompts"), "prompts/1", columns=["capability", "split"]).to_pylist()
    trained = {row["capability"] for row in all_prompts if row["split"] in (Split.PRETRAIN, Split.TRAIN)}
    summary = summarise(state.tallies, rows, trained)
    overall = summary["scopes"][OVERALL]
    if overall["unscorable"]:
        ctx.notice(f"unscorable samples, left out of every estimate: {overall['unscorable']}")
    if overall["unsigned"]:
        ctx.notice(
            f"{overall['unsigned']} correct samples have no strategy signature; they count as one strategy"
        )
    for k in params.ks:
        lacking = sum(tally.scorable < k for tally in state.tallies)
        if lacking:
            ctx.notice(f"{lacking} prompts have fewer than {k} scorable samples: no estimate at k = {k}")
    state.samples.write(ctx.output_path("samples"), token_metadata(policy))
    with DatasetWriter(ctx.output_path("evaluation"), "evaluation/1", {}) as writer:
        writer.write(rows)
    text = json.dumps(summary, indent=1, sort_keys=True, allow_nan=False)
    (ctx.output("summary") / "summary.json").write_text(text + "\n")
