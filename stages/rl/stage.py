"""RL with replay: groups of the policy's own samples, verified; elites of the frozen base beside them.

How a gradient is made of them is the recipe's choice (stages/estimators/params.py). Replay never enters group
statistics or ratios. Groups are kept or dropped whole; one without anything to teach costs no forward pass.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_contracts.checkpoint import record_after
from data_contracts.dataset import token_metadata
from stages.context import StageContext
from stages.domains.pool import VerifierPool, open_pool
from stages.domains.registry import open_domain
from stages.engines.checkpoint import export
from stages.engines.protocol import Trainer
from stages.part_buffer import PartBuffer
from stages.rl.audit import audit_first_rollouts, refuse_guessing
from stages.rl.collect import Collected, collect
from stages.rl.elites import Elites, open_elites
from stages.rl.experience import experience, scored
from stages.rl.params import RlParams
from stages.rl.policy import Policy, open_policy
from stages.rl.policy_term import PolicyTerm
from stages.rl.replay_term import drawn_elites, replay_term
from stages.rl.sampler import Sampler
from stages.rl.shortfalls import Shortfall, of_step, told
from stages.rl.vigilance import StepCounts, WidthAlarm, count, preflight
from stages.rl.worth import worth
from stages.sampling.judged import rollout_rows

Context = StageContext[RlParams]
KEPT_ROLLOUT_STEPS = 8  # of the last steps, for reading and for audits


class RlState:
    """Everything that the next step needs; the engine takes its weights from the sampler at each step."""

    def __init__(self, trainer: Trainer, sampler: Sampler, rollouts: PartBuffer) -> None:
        self.trainer = trainer
        self.sampler = sampler
        self.rollouts = rollouts
        self.alarm = WidthAlarm()
        self.rounds = 0  # of prompts that were sampled
        self.shortfalls: Counter[Shortfall] = Counter()
        self.answer_classes: list[dict[str, Any]] = []  # the audit of the first rollouts

    def save(self, folder: Path) -> None:
        self.trainer.save(folder)
        self.sampler.save(folder)
        self.rollouts.save(folder)
        watched = {
            "alarm": asdict(self.alarm),
            "rounds": self.rounds,
            "shortfalls": self.shortfalls,
            "answer_classes": self.answer_classes,
        }
        (folder / "watched.json").write_text(json.dumps(watched))

    def load(self, folder: Path) -> None:
        self.trainer.load(folder)
        self.sampler.load(folder)
        self.rollouts.load(folder)
        watched = json.loads((folder / "watched.json").read_text())
        self.alarm = WidthAlarm(**watched["alarm"])
        self.rounds, self.answer_classes = watched["rounds"], watched["answer_classes"]
        self.shortfalls = Counter({Shortfall(kind): n for kind, n in watched["shortfalls"].items()})


@dataclass(frozen=True)
class Trained:
    """What a step trained on; `idle` if there was nothing."""

    idle: bool
    metrics: dict[str, float | None]


def run(ctx: Context) -> None:
    params = ctx.params
    record = record_after(ctx.input("policy"), "rl", params.steps, rl_steps=params.steps)
    policy = open_policy(ctx)
    refuse_guessing(policy.rows, params)
    sampler = Sampler(policy.engine, params.sampler_lag)
    state = RlState(policy.trainer, sampler, PartBuffer(ctx.work / "rollouts", "rollouts/1"))
    with open_pool(ctx) as pool:
        elites = checked_elites(ctx, record.base_digest, policy, pool)
        for step in ctx.steps(params.steps, state):
            sampler.refresh(policy.trainer.weights(), step)
            collected = collect(ctx, policy, pool, state.rounds)
            state.rounds += collected.rounds
            state.rollouts.append(rollout_rows(collected.sampled, step))
            state.rollouts.keep_last(KEPT_ROLLOUT_STEPS)
            counts = count(collected.sampled, collected.varied)
            if step == 0:
                preflight(counts, params.preflight)
                state.answer_classes = audit_first_rollouts(ctx, policy.rows, collected.sampled, pool)
            trained = train_step(ctx, policy, collected, elites, step)
            state.shortfalls.update(of_step(params, len(collected.taken), trained.idle, trained.metrics))
            alarming = watch(ctx, state.alarm, counts, step + 1)
            logged = {"rounds": collected.rounds, **trained.metrics, "width_alarm": int(alarming)}
            ctx.log(step + 1, **asdict(counts), **logged)
    for sentence in told(state.shortfalls, params):
        ctx.notice(sentence)
    state.rollouts.write(ctx.output_path("rollouts"), token_metadata(ctx.input("policy")))
    audit = ctx.output("audit") / "answer_classes.json"
    audit.write_text(json.dumps(state.answer_classes, indent=1, allow_nan=False))
    export(policy.trainer.model, policy.tokenizer, record, ctx.output("checkpoint"))


def checked_elites(ctx: Context, base_digest: str, policy: Policy, pool: VerifierPool) -> Elites:
    """The archive's elites; see open_elites for what is refused."""
    signature_version = open_domain(ctx.input("domain")).signature_version
    elites = open_elites(ctx.input("archive"), base_digest, signature_version, policy.rows, pool)
    if ctx.params.replay.coefficient:
        elites.require_width()
    if elites.left_out:
        ctx.notice(f"{elites.left_out} archived prompts have a single strategy and are not replayed")
    return elites


def train_step(ctx: Context, policy: Policy, collected: Collected, elites: Elites, step: int) -> Trained:
    """The step's updates on what its groups and elites give; none if they give nothing."""
    params, pad_id = ctx.params, policy.tokenizer.pad_token_id
    taken, found = None, dict[str, float | None]()
    if collected.taken:
        of_groups = worth(collected.taken, params)
        taken, found = experience(collected.taken, of_groups, params, pad_id), {**of_groups.metrics}
    drawn = drawn_elites(elites, params.replay, collected.sampled, ctx.seed("replay", step))
    if taken is None and not drawn:
        return Trained(idle=True, metrics={**found, "replay_nll": None, "gradient_norm": 0.0})
    if taken is not None:
        taken = scored(taken, policy, params, step)
    for update in range(params.updates_per_batch):
        of_policy = PolicyTerm(taken, params, policy.engine, step, update == 0) if taken else None
        of_elites = replay_term(drawn, params.replay, pad_id) if drawn else None
        norm = policy.trainer.step([(term.batch, term.loss) for term in (of_policy, of_elites) if term])
        if of_policy is not None and update == 0:
            found = {**found, **of_policy.require_agreement(params.engine.max_logprob_gap, step + 1)}
    return Trained(
        idle=False,
        metrics={
            **found,
            **(of_policy.metrics() if of_policy else {}),
            **(of_elites.metrics() if of_elites else {"replay_nll": None}),
            "gradient_norm": norm,
        },
    )


def watch(ctx: Context, alarm: WidthAlarm, counts: StepCounts, step: int) -> bool:
    """Whether width is being lost; told once, at the first step that shows it."""
    alarming = alarm.update(step, counts)
    if alarming and alarm.raised_at == step:
        ctx.notice("distinct correct strategies fall while the pass rate rises: width is being lost")
    return alarming
