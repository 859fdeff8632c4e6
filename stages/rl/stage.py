"""GRPO with replay: groups of the policy's own samples, verified; elites of the frozen base beside them.

Replay never enters group statistics or ratios. Groups are kept or dropped whole; a group without reward
variance costs no forward pass.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_contracts.checkpoint import record_after
from data_contracts.dataset import token_metadata
from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.pool import VerifierPool, open_pool
from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.domains.registry import open_domain
from stages.engines.batch import TokenBatch
from stages.engines.chat import open_tokenizer
from stages.engines.checkpoint import export
from stages.engines.hf import open_engine
from stages.engines.protocol import MicroBatchLoss, RolloutEngine, Trainer
from stages.engines.torch_trainer import open_trainer
from stages.estimators.advantages import GroupAdvantages, group_relative
from stages.part_buffer import PartBuffer
from stages.rl.losses import GrpoTerm, grpo_term, replay_term
from stages.rl.params import RlParams
from stages.rl.replay import Replay, open_replay
from stages.rl.vigilance import StepCounts, WidthAlarm, count, preflight
from stages.sampling.judged import Judged, rewards_PG, rollout_rows, sample_groups

Context = StageContext[RlParams]
KEPT_ROLLOUT_STEPS = 8  # of the last steps, for reading and for audits


@dataclass(frozen=True)
class Policy:
    """What is trained, what samples it, and the prompts that it is trained on."""

    trainer: Trainer
    engine: RolloutEngine
    tokenizer: Any
    rows: list[PromptRow]


class RlState:
    """Everything that the next step needs; the engine takes its weights from the trainer at each step."""

    def __init__(self, trainer: Trainer, rollouts: PartBuffer) -> None:
        self.trainer = trainer
        self.rollouts = rollouts
        self.alarm = WidthAlarm()
        self.idle_steps = 0  # that had nothing to train on

    def save(self, folder: Path) -> None:
        self.trainer.save(folder)
        self.rollouts.save(folder)
        watched = {"alarm": asdict(self.alarm), "idle_steps": self.idle_steps}
        (folder / "watched.json").write_text(json.dumps(watched))

    def load(self, folder: Path) -> None:
        self.trainer.load(folder)
        self.rollouts.load(folder)
        watched = json.loads((folder / "watched.json").read_text())
        self.alarm, self.idle_steps = WidthAlarm(**watched["alarm"]), watched["idle_steps"]


@dataclass(frozen=True)
class Trained:
    """What a step trained on; `idle` if there was nothing."""

    idle: bool
    metrics: dict[str, float | None]


def run(ctx: Context) -> None:
    params = ctx.params
    record = record_after(ctx.input("policy"), "rl", params.steps, rl_steps=params.steps)
    policy = open_policy(ctx)
    state = RlState(policy.trainer, PartBuffer(ctx.work / "rollouts", "rollouts/1"))
    with open_pool(ctx) as pool:
        replay = checked_replay(ctx, record.base_digest, policy.rows, pool)
        for step in ctx.steps(params.steps, state):
            groups = sample(ctx, policy, pool, step)
            state.rollouts.append(rollout_rows(groups, params.sampling, step))
            state.rollouts.keep_last(KEPT_ROLLOUT_STEPS)
            advantages = group_relative(*rewards_PG(groups))
            counts = count(groups, advantages.informative_P.tolist())
            if step == 0:
                preflight(counts, params.preflight)
            trained = train_step(ctx, policy, groups, advantages, replay, step)
            state.idle_steps += trained.idle
            alarming = watch(ctx, state.alarm, counts, step + 1)
            ctx.log(step + 1, **asdict(counts), **trained.metrics, width_alarm=int(alarming))
    if state.idle_steps:
        ctx.notice(f"{state.idle_steps} steps had neither reward variance nor elites and trained nothing")
    state.rollouts.write(ctx.output_path("rollouts"), token_metadata(ctx.input("policy")))
    export(policy.trainer.model, policy.tokenizer, record, ctx.output("checkpoint"))


def open_policy(ctx: Context) -> Policy:
    params, folder = ctx.params, ctx.input("policy")
    return Policy(
        trainer=open_trainer(folder, params.optimizer, params.steps, ctx.runtime),
        engine=open_engine(folder, params.engine, ctx.runtime),
        tokenizer=open_tokenizer(folder),
        rows=read_prompts(ctx.input("prompts"), Split.TRAIN),
    )


def checked_replay(ctx: Context, base_digest: str, rows: list[PromptRow], pool: VerifierPool) -> Replay:
    """The archive's elites; see open_replay for what is refused."""
    signature_version = open_domain(ctx.input("domain")).signature_version
    replay = open_replay(ctx.input("archive"), base_digest, signature_version, rows, pool)
    if ctx.params.replay.coefficient:
        replay.require_width()
    if replay.left_out:
        ctx.notice(f"{replay.left_out} archived prompts have a single strategy and are not replayed")
    return replay


def sample(ctx: Context, policy: Policy, pool: VerifierPool, step: int) -> list[list[Judged]]:
    """The step's groups, of the weights as they are now."""
    params = ctx.params
    policy.engine.load_weights(policy.trainer.weights(), step)
    taken = rows_of_step(len(policy.rows), params.prompts_per_step, step, ctx.seed("rows"))
    return sample_groups(
        policy.engine,
        policy.tokenizer,
        pool,
        [policy.rows[index] for index in taken],
        params.group_size,
        params.sampling,
        ctx.seed("samples", step),
    )


def train_step(
    ctx: Context,
    policy: Policy,
    groups: list[list[Judged]],
    advantages: GroupAdvantages,
    replay: Replay,
    step: int,
) -> Trained:
    """One optimizer step on what the groups and the elites of this step give; none if they give nothing."""
    params, pad_id = ctx.params, policy.tokenizer.pad_token_id
    terms: list[tuple[TokenBatch, MicroBatchLoss]] = []
    grpo: GrpoTerm | None = None
    if bool(advantages.informative_P.any()):
        grpo = grpo_term(groups, advantages, params, pad_id)
        terms.append((grpo.batch, grpo.loss))
    nll: list[float] = []
    if params.replay.coefficient:
        elites = replay.draw(params.replay.elites_per_step, ctx.seed("replay", step))
        if elites:
            terms.append(replay_term(elites, params.replay.coefficient, pad_id, nll))
    norm = policy.trainer.step(terms) if terms else 0.0
    if grpo is not None:
        grpo.agreement.require(params.engine.max_logprob_gap, step + 1)
    return Trained(
        idle=not terms,
        metrics={
            **(grpo.metrics() if grpo else {}),
            "replay_nll": sum(nll) if nll else None,
            "gradient_norm": norm,
        },
    )


def watch(ctx: Context, alarm: WidthAlarm, counts: StepCounts, step: int) -> bool:
    """Whether width is being lost; told once, at the first step that shows it."""
    alarming = alarm.update(step, counts)
    if alarming and alarm.raised_at == step:
        ctx.notice("distinct correct strategies fall while the pass rate rises: width is being lost")
    return alarming
