"""On-policy distillation: dense reverse KL to a teacher on the student's own samples, until it stops paying.

The switch to RL is decided by held-out reward only, never by the training loss; no task reward enters here
(methods.md section 6).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from data_contracts.checkpoint import read_record, record_after
from stages.context import StageContext
from stages.cursor import rows_of_step
from stages.domains.pool import open_pool
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.domains.selection import choose
from stages.engines.batch import align_to_targets, completion_batch
from stages.engines.chat import open_tokenizer, prompt_ids
from stages.engines.checkpoint import export
from stages.engines.hf import open_engine
from stages.engines.torch_trainer import TorchTrainer, open_trainer
from stages.errors import GuardError
from stages.estimators.plateau import Decision, Plateau, PlateauDetector
from stages.opd.loss import DistillationTerm
from stages.opd.params import OpdParams
from stages.opd.teacher import Teacher, require_same_tokenizer
from stages.opd.validation import Validation, score
from stages.sampling.judged import sample_groups


class OpdState:
    """The student, its optimizer, the detector, the curve that it saw, and how often the teacher spoke."""

    def __init__(self, trainer: TorchTrainer, teacher: Teacher, params: OpdParams) -> None:
        self.trainer = trainer
        self.teacher = teacher
        self.plateau = Plateau(
            delta=params.plateau.delta,
            patience=params.plateau.patience,
            min_steps=params.plateau.min_steps,
            max_steps=params.max_steps,
        )
        self.detector = PlateauDetector(self.plateau)
        self.curve: list[Validation] = []

    def save(self, folder: Path) -> None:
        self.trainer.save(folder)
        detector = {
            "detector": self.detector.to_json(),
            "curve": [validation.as_json() for validation in self.curve],
            "teacher_calls": self.teacher.calls,
        }
        (folder / "switch.json").write_text(json.dumps(detector))

    def load(self, folder: Path) -> None:
        self.trainer.load(folder)
        saved = json.loads((folder / "switch.json").read_text())
        self.detector = PlateauDetector.from_json(self.plateau, saved["detector"])
        self.curve = [Validation(**validation) for validation in saved["curve"]]
        self.teacher.calls = saved["teacher_calls"]


def run(ctx: StageContext[OpdParams]) -> None:
    params = ctx.params
    policy = ctx.input("policy")
    record = read_record(policy)
    if record.rl_steps:
        raise GuardError(
            f"opd comes before rl, and this policy has {record.rl_steps} RL steps behind it: "
            "distil the model that RL started from"
        )
    require_same_tokenizer(policy, ctx.input("teacher"))
    tokenizer = open_tokenizer(policy)
    teacher = Teacher(ctx.input("teacher"))
    trainer = open_trainer(policy, params.optimizer, params.max_steps, ctx.runtime)
    engine = open_engine(policy, params.engine, ctx.runtime)
    rows = read_prompts(ctx.input("prompts"), Split.TRAIN)
    held_out = choose(
        read_prompts(ctx.input("prompts"), Split.VALIDATION),
        params.plateau.prompts,
        ctx.seed("held out"),
    )
    prompts = [prompt_ids(tokenizer, row.messages) for row in rows]
    state = OpdState(trainer, teacher, params)
    decision, trained = Decision.CONTINUE, params.max_steps

    with open_pool(ctx) as pool:

        def validate(step: int) -> Decision:
            engine.load_weights(trainer.weights(), step)
            seed = ctx.seed("validation")  # the same noise each time: two validations differ by their weights
            groups = sample_groups(
                engine, tokenizer, pool, held_out, params.plateau.samples, params.sampling, seed
            )
            validation = score(step, groups)
            state.curve.append(validation)
            ctx.log(step, validation=validation.score, validation_error=validation.standard_error)
            return state.detector.update(step, validation.score, validation.standard_error)

        for step in ctx.steps(params.max_steps, state):
            if step == 0:
                validate(step)
            engine.load_weights(trainer.weights(), step)
            taken = rows_of_step(len(rows), params.prompts_per_step, step, ctx.seed("rows"))
            own = [prompts[index] for index in taken]
            rollouts = engine.generate(own, 1, params.sampling, ctx.seed("samples", step))
            batch = completion_batch(
                own, [rollout.completion_ids for rollout in rollouts], tokenizer.pad_token_id
            )
            recorded_BT = align_to_targets(batch, [rollout.logprobs for rollout in rollouts])
            term = DistillationTerm(batch, teacher, recorded_BT, params.sampling.temperature)
            norm = trainer.step([(batch, term.loss)])
            done = step + 1
            term.agreement.require(params.engine.max_logprob_gap, done)
            ctx.log(
                done,
                reverse_kl=term.reverse_kl,
                logprob_gap=term.agreement.gap,
                gradient_norm=norm,
                tokens=batch.target_count,
            )
            # before the step is saved: what has been validated is not validated again
            if done % params.plateau.evaluate_every == 0 or done == params.max_steps:
                decision = validate(done)
                if decision is not Decision.CONTINUE:
                    trained = done
                    break
        teacher.retire()

    if decision is not Decision.PLATEAU:
        ctx.notice(
            f"distillation ran into max_steps={params.max_steps} with its validation still rising: "
            "the switch to RL is early"
        )
    write_switch(ctx.output("switch"), state.curve, trained, decision, teacher.calls)
    export(trainer.model, tokenizer, record_after(policy, "opd", trained), ctx.output("checkpoint"))


def write_switch(
    folder: Path, curve: Sequence[Validation], step: int, decision: Decision, teacher_calls: int
) -> None:
    """The curve, where distillation ended and why; the teacher's calls end with it."""
    switch = {
        "curve": [validation.as_json() for validation in curve],
        "switch_step": step,
        "reason": decision,
        "teacher_calls": teacher_calls,
    }
    (folder / "switch.json").write_text(json.dumps(switch, indent=1))
