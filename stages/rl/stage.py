"""GRPO with replay: groups of the policy's own samples, verified; elites of the frozen base beside them.

Replay never enters group statistics or ratios. Groups are kept or dropped whole; a group without reward
variance costs no forward pass.
"""

import json
from dataclasses import asdict
from pathlib import Path

from data_contracts.checkpoint import facts, record_after, tokenizer_digest
from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.pool import open_pool
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.domains.registry import open_domain
from stages.engines.batch import TokenBatch
from stages.engines.chat import open_tokenizer
from stages.engines.checkpoint import export
from stages.engines.hf import open_engine
from stages.engines.protocol import MicroBatchLoss, RolloutEngine
from stages.engines.torch_trainer import TorchTrainer, open_trainer
from stages.estimators.advantages import group_relative
from stages.part_buffer import PartBuffer
from stages.rl.losses import GrpoTerm, grpo_term, replay_term
from stages.rl.params import RlParams
from stages.rl.replay import open_replay
from stages.rl.vigilance import WidthAlarm, count, preflight
from stages.sampling.judged import rewards_PG, rollout_rows, sample_groups

KEPT_ROLLOUT_STEPS = 8  # of the last steps, for reading and for audits


class RlState:
    """Everything that the next step needs; the engine takes its weights from the trainer at each step."""

    def __init__(self, trainer: TorchTrainer, engine: RolloutEngine, rollouts: PartBuffer) -> None:
        self.trainer = trainer
        self.engine = engine
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


def run(ctx: StageContext[RlParams]) -> None:
    params = ctx.params
    policy = ctx.input("policy")
    record = record_after(policy, "rl", params.steps, rl_steps=params.steps)
    tokenizer = open_tokenizer(policy)
    trainer = open_trainer(policy, params.optimizer, params.steps, ctx.runtime)
    engine = open_engine(policy, params.engine, ctx.runtime)
    domain = open_domain(ctx.input("domain"))
    rows = read_prompts(ctx.input("prompts"), Split.TRAIN)
    state = RlState(trainer, engine, PartBuffer(ctx.work / "rollouts", "rollouts/1"))
    with open_pool(ctx) as pool:
        replay = open_replay(ctx.input("archive"), record.base_digest, domain.signature_version, rows, pool)
        if params.replay.coefficient:
            replay.require_width()
        if replay.left_out:
            ctx.notice(f"{replay.left_out} archived prompts have a single strategy and are not replayed")
        for step in ctx.steps(params.steps, state):
            engine.load_weights(trainer.weights(), step)
            taken = rows_of_step(len(rows), params.prompts_per_step, step, ctx.seed("rows"))
            groups = sample_groups(
                engine,
                tokenizer,
                pool,
                [rows[index] for index in taken],
                params.group_size,
                params.sampling,
                ctx.seed("samples", step),
            )
            state.rollouts.append(rollout_rows(groups, params.sampling, step))
            state.rollouts.keep_last(KEPT_ROLLOUT_STEPS)
            advantages = group_relative(*rewards_PG(groups))
            counts = count(groups, advantages.informative_P.tolist())
            if step == 0:
                preflight(counts, params.preflight)

            terms: list[tuple[TokenBatch, MicroBatchLoss]] = []
            grpo: GrpoTerm | None = None
            if bool(advantages.informative_P.any()):
                grpo = grpo_term(groups, advantages, params, tokenizer.pad_token_id)
                terms.append((grpo.batch, grpo.loss))
            nll: list[float] = []
            if params.replay.coefficient:
                elites = replay.draw(params.replay.elites_per_step, ctx.seed("replay", step))
                if elites:
                    terms.append(replay_term(elites, params.replay.coefficient, tokenizer.pad_token_id, nll))
            norm = trainer.step(terms) if terms else 0.0
            state.idle_steps += not terms
            if grpo is not None:
                grpo.agreement.require(params.engine.max_logprob_gap, step + 1)
            alarming = state.alarm.update(step + 1, counts)
            if alarming and state.alarm.raised_at == step + 1:
                ctx.notice("distinct correct strategies fall while the pass rate rises: width is being lost")
            ctx.log(
                step + 1,
                **asdict(counts),
                **(grpo.metrics() if grpo else {}),
                replay_nll=sum(nll) if nll else None,
                gradient_norm=norm,
                width_alarm=int(alarming),
            )
    if state.idle_steps:
        ctx.notice(f"{state.idle_steps} steps had neither reward variance nor elites and trained nothing")
    metadata = {
        "posttrain.tokenizer": tokenizer_digest(policy),
        "posttrain.vocabulary": str(facts(policy).vocabulary_size),
    }
    state.rollouts.write(ctx.output_path("rollouts"), metadata)
    export(trainer.model, tokenizer, record, ctx.output("checkpoint"))
