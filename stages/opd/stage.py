"""On-policy distillation: dense reverse KL to a teacher on the student's own samples, until it stops paying.

The switch to RL is decided by held-out reward only, never by the training loss; no task reward enters here
(methods.md section 6).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_contracts.checkpoint import read_record, record_after
from data_contracts.dataset import token_metadata
from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.pool import VerifierPool, open_pool
from stages.domains.prompt_table import PromptRow, read_prompts
from stages.domains.protocol import Split
from stages.domains.selection import choose
from stages.engines.batch import align_to_targets, completion_batch
from stages.engines.chat import open_tokenizer, prompt_ids
from stages.engines.checkpoint import export
from stages.engines.hf import open_engine
from stages.engines.protocol import RolloutEngine, Trainer
from stages.engines.routes import refuse_mixture_of_experts
from stages.engines.torch_trainer import open_trainer
from stages.errors import GuardError
from stages.estimators.plateau import Decision, PlateauDetector
from stages.opd.loss import DistillationTerm
from stages.opd.params import OpdParams
from stages.opd.teacher import Teacher, require_same_tokenizer
from stages.opd.validation import Validation, score
from stages.part_buffer import PartBuffer
from stages.sampling.judged import rollout_rows, sample_groups

Context = StageContext[OpdParams]


@dataclass(frozen=True)
class Student:
    """The policy that is trained, what samples it, and the rows that it is trained and judged on."""

    trainer: Trainer
    engine: RolloutEngine
    tokenizer: Any
    prompts: list[list[int]]  # token ids of the training prompts
    held_out: list[PromptRow]


class OpdState:
    """The student's weights, the detector and what it was shown."""

    def __init__(self, trainer: Trainer, teacher: Teacher, rollouts: PartBuffer, params: OpdParams) -> None:
        self.trainer = trainer
        self.teacher = teacher
        self.rollouts = rollouts  # of the validations: they decide the switch
        self.params = params
        self.detector = PlateauDetector(params.plateau, params.max_steps)
        self.curve: list[Validation] = []

    def save(self, folder: Path) -> None:
        self.trainer.save(folder)
        self.rollouts.save(folder)
        detector = {
            "detector": self.detector.to_json(),
            "curve": [validation.as_json() for validation in self.curve],
        }
        (folder / "switch.json").write_text(json.dumps(detector))

    def load(self, folder: Path) -> None:
        self.trainer.load(folder)
        self.rollouts.load(folder)
        saved = json.loads((folder / "switch.json").read_text())
        params = self.params
        self.detector = PlateauDetector.from_json(params.plateau, params.max_steps, saved["detector"])
        self.curve = [Validation(**validation) for validation in saved["curve"]]


def run(ctx: Context) -> None:
    policy = ctx.input("policy")
    refuse_rl_ancestor(policy)
    refuse_mixture_of_experts(policy)
    require_same_tokenizer(policy, ctx.input("teacher"))
    student = open_student(ctx)
    rollouts = PartBuffer(ctx.work / "validation", "rollouts/1")
    state = OpdState(
        student.trainer, Teacher(ctx.input("teacher"), ctx.runtime.micro_batch_rows), rollouts, ctx.params
    )
    with open_pool(ctx) as pool:
        decision, trained = distil(ctx, student, state, pool)
    state.teacher.retire()
    if decision is not Decision.PLATEAU:
        ctx.notice(
            f"distillation ran into max_steps={ctx.params.max_steps} before a plateau: "
            "the switch to RL may be early"
        )
    if state.curve[-1].zero_variance == 1.0:
        ctx.notice(
            "no validation prompt has both right and wrong samples at the switch: RL has nothing to learn, "
            "and its preflight may refuse"
        )
    state.rollouts.write(ctx.output_path("rollouts"), token_metadata(policy))
    write_switch(ctx.output("switch"), state.curve, trained, decision)
    record = record_after(policy, "opd", trained)
    export(student.trainer.model, student.tokenizer, record, ctx.output("checkpoint"))


def refuse_rl_ancestor(policy: Path) -> None:
    record = read_record(policy)
    if record.rl_steps:
        raise GuardError(
            f"opd comes before rl, and this policy has {record.rl_steps} RL steps behind it: "
            "distil the model that RL started from"
        )


def open_student(ctx: Context) -> Student:
    params, policy = ctx.params, ctx.input("policy")
    tokenizer = open_tokenizer(policy)
    rows = read_prompts(ctx.input("prompts"), Split.TRAIN)
    held_out = read_prompts(ctx.input("prompts"), Split.VALIDATION)
    return Student(
        trainer=open_trainer(policy, params.optimizer, params.max_steps, ctx.runtime),
        engine=open_engine(policy, params.engine, ctx.runtime),
        tokenizer=tokenizer,
        prompts=[prompt_ids(tokenizer, row.messages) for row in rows],
        held_out=choose(held_out, params.plateau.prompts, ctx.seed("held out")),
    )


def distil(ctx: Context, student: Student, state: OpdState, pool: VerifierPool) -> tuple[Decision, int]:
    """Train until the detector decides; returns its decision and the steps that are behind the student."""
    params = ctx.params
    for step in ctx.steps(params.max_steps, state):
        if step == 0:
            validate(ctx, student, state, pool, step)
        train_step(ctx, student, state.teacher, step)
        done = step + 1
        # before the step is saved: what has been validated is not validated again
        if done % params.plateau.evaluate_every == 0 or done == params.max_steps:
            decision = validate(ctx, student, state, pool, done)
            if decision is not Decision.CONTINUE:
                return decision, done
    raise AssertionError("the detector decides at max_steps at the latest")


def validate(ctx: Context, student: Student, state: OpdState, pool: VerifierPool, step: int) -> Decision:
    """Score the student on the held-out prompts and let the detector decide."""
    params = ctx.params
    student.engine.load_weights(student.trainer.weights(), step)
    seed = ctx.seed("validation")  # the same noise each time: two validations differ by their weights
    groups = sample_groups(
        student.engine,
        student.tokenizer,
        pool,
        student.held_out,
        params.plateau.samples,
        params.sampling,
        seed,
    )
    validation = score(step, groups)
    state.curve.append(validation)
    state.rollouts.append(rollout_rows(groups, step))
    ctx.log(
        step,
        validation=validation.score,
        validation_error=validation.standard_error,
        zero_variance=validation.zero_variance,
        surprise=validation.surprise,
    )
    return state.detector.update(step, validation.score, validation.standard_error)


def train_step(ctx: Context, student: Student, teacher: Teacher, step: int) -> None:
    """Sample from the student, ask the teacher about these samples, and take one optimizer step."""
    params = ctx.params
    student.engine.load_weights(student.trainer.weights(), step)
    taken = rows_of_step(len(student.prompts), params.prompts_per_step, step, ctx.seed("rows"))
    prompts = [student.prompts[index] for index in taken]
    rollouts = student.engine.generate(prompts, 1, params.sampling, ctx.seed("samples", step))
    batch = completion_batch(
        prompts, [rollout.completion_ids for rollout in rollouts], student.tokenizer.pad_token_id
    )
    recorded_BT = align_to_targets(batch, [rollout.logprobs for rollout in rollouts])
    term = DistillationTerm(batch, teacher, recorded_BT, params.sampling.temperature, params.estimator)
    norm = student.trainer.step([(batch, term.loss)])
    term.agreement.require(params.engine.max_logprob_gap, step + 1)
    ctx.log(
        step + 1,
        reverse_kl=term.reverse_kl,
        logprob_gap=term.agreement.gap,
        gradient_norm=norm,
        tokens=batch.target_count,
    )


def write_switch(folder: Path, curve: Sequence[Validation], step: int, decision: Decision) -> None:
    """The curve, where distillation ended and why."""
    switch = {
        "curve": [validation.as_json() for validation in curve],
        "switch_step": step,
        "reason": decision,
    }
    (folder / "switch.json").write_text(json.dumps(switch, indent=1))
