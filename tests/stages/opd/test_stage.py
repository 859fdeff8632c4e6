"""Distillation: nothing to learn from oneself, a switch by held-out reward, a resume that hides nothing."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from data_contracts.checkpoint import StageRecord, check, read_record, tensor_digest
from data_contracts.dataset import read
from data_contracts.registry import contract
from stages.cursor import rows_of_step
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.engines.batch import completion_batch
from stages.engines.chat import prompt_ids
from stages.engines.hf import open_engine
from stages.engines.params import EngineParams, OptimizerParams, Sampling, Schedule
from stages.engines.torch_trainer import open_trainer
from stages.errors import GuardError
from stages.estimators.params import ForwardKl, FullVocabularyKl, SampledKl, TopKKl, VarianceReducedKl
from stages.estimators.plateau import PlateauDetector
from stages.opd.loss import DistillationTerm
from stages.opd.params import OpdParams, PlateauParams
from stages.opd.stage import run
from stages.opd.teacher import Teacher
from stages.spec import Runtime

NEVER = PlateauParams(evaluate_every=2, prompts=6, samples=2, patience=50, min_steps=0)


def opd_params(plateau: PlateauParams = NEVER, **changes) -> OpdParams:
    return OpdParams(
        plateau=plateau,
        **{
            "max_steps": 5,
            "prompts_per_step": 12,
            "sampling": Sampling(max_new_tokens=8),
            "optimizer": OptimizerParams(learning_rate=1e-2, warmup_steps=0, schedule=Schedule.CONSTANT),
            **changes,
        },
    )


def switch(attempt):
    return json.loads((attempt.out("switch") / "switch.json").read_text())


def distilled(world, root, params, policy, teacher, runtime=None):
    attempt = world.attempt(root, params, runtime, policy=policy, teacher=teacher)
    ctx = attempt.context()
    run(ctx)
    return attempt, ctx.notices


@pytest.fixture(scope="module")
def undisturbed(world, base, teacher, tmp_path_factory):
    return distilled(world, tmp_path_factory.mktemp("opd"), opd_params(), base, teacher)[0]


def test_checkpoint_and_history(undisturbed, base):
    checkpoint = undisturbed.out("checkpoint")
    assert check(checkpoint) == []
    record = read_record(checkpoint)
    assert record.stages == (StageRecord("base", 60), StageRecord("opd", 5))
    assert (record.base_digest, record.rl_steps) == (tensor_digest(base), 0)


@pytest.mark.oracle("6.1")
def test_from_oneself_there_is_nothing_to_learn(world, base, tmp_path):
    """Bit for bit, at a temperature as well."""
    params = opd_params(sampling=Sampling(max_new_tokens=8, temperature=0.7), max_steps=2)
    attempt, _ = distilled(world, tmp_path, params, base, base)
    trained = [row for row in attempt.metrics() if "reverse_kl" in row]
    assert [(row["reverse_kl"], row["gradient_norm"]) for row in trained] == [(0.0, 0.0)] * 2
    assert attempt.has_weights_of(base)


def test_reverse_kl_on_the_students_own_samples_falls(world, base, teacher, tmp_path):
    attempt, _ = distilled(world, tmp_path, opd_params(max_steps=16, prompts_per_step=24), base, teacher)
    kl = [row["reverse_kl"] for row in attempt.metrics() if "reverse_kl" in row]
    assert len(kl) == 16 and min(kl) > 0
    assert sum(kl[-4:]) < 0.6 * sum(kl[:4])


def test_the_loss_is_the_mean_reverse_kl_over_sampled_tokens_at_the_sampling_temperature(base, teacher):
    trainer = open_trainer(base, OptimizerParams(), 1, Runtime())
    batch = completion_batch([[2, 40, 3], [2, 41, 42, 3]], [[50, 51, 1], [52]], 0)
    teacher_model, total = Teacher(teacher, 32), 0.0
    term = DistillationTerm(batch, teacher_model, torch.zeros(batch.mask_BT.shape), 0.7, FullVocabularyKl())
    for micro in batch.micro_batches(1):
        total += float(term.loss(trainer.forward(micro), micro).detach())
    expected = []
    for prompt, answer in (([2, 40, 3], [50, 51, 1]), ([2, 41, 42, 3], [52])):
        with torch.no_grad():
            ids = torch.tensor([prompt + answer])
            p, q = (
                (model(ids).logits[0, len(prompt) - 1 : -1].double() / 0.7).softmax(-1)
                for model in (trainer.model, teacher_model.model.model)
            )
        expected += (p * (p / q).log()).sum(-1).tolist()
    assert total == pytest.approx(sum(expected) / 4, rel=1e-4)
    assert term.reverse_kl == pytest.approx(total)


def distillation_gradient(trainer, batch, teacher, estimator):
    trainer.model.zero_grad(set_to_none=True)
    term = DistillationTerm(batch, Teacher(teacher, 32), torch.zeros(batch.mask_BT.shape), 0.7, estimator)
    for micro in batch.micro_batches(1):
        term.loss(trainer.forward(micro), micro).backward()
    return term, torch.cat([p.grad.flatten() for p in trainer.model.parameters()])


def same(found, expected):
    """Up to float32: sums of terms as large as the largest gradient are off by its rounding, in any entry."""
    return bool((found - expected).abs().max() <= 5e-5 * expected.abs().max())


def test_each_estimator_of_the_recipe_reaches_the_loss(world, base, teacher):
    trainer = open_trainer(base, OptimizerParams(), 1, Runtime())
    batch = completion_batch([[2, 40, 3], [2, 41, 42, 3]], [[50, 51, 1], [52]], 0)
    exact, full = distillation_gradient(trainer, batch, teacher, FullVocabularyKl())
    dense, top_k = distillation_gradient(trainer, batch, teacher, TopKKl(k=len(world.tokenizer)))
    assert same(full, top_k) and full.abs().max() > 1e-3
    assert dense.reverse_kl == pytest.approx(exact.reverse_kl, abs=1e-5)
    coarse, _ = distillation_gradient(trainer, batch, teacher, TopKKl(k=2))
    assert 0 < coarse.reverse_kl < exact.reverse_kl

    places = batch.mask_BT.reshape(-1).nonzero().squeeze(1)
    student = (trainer.forward(batch).logits_BTV.flatten(0, 1)[places] / 0.7).log_softmax(-1)
    taught = Teacher(teacher, 32).distribution(batch, 0.7).logprobs_NV(places)
    target = batch.target_BT.reshape(-1)[places].unsqueeze(1)
    d = (taught - student).gather(1, target).detach()
    kl = (student.exp() * (student - taught)).sum(1, keepdim=True).detach()
    trainer.model.zero_grad(set_to_none=True)
    (-(taught.exp() * student).sum(1).mean()).backward(retain_graph=True)
    cross_entropy = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    term, own = distillation_gradient(trainer, batch, teacher, ForwardKl())
    assert same(own, cross_entropy)
    assert term.reverse_kl == pytest.approx(-float(d.mean()), abs=1e-5)
    for estimator, advantage in ((SampledKl(), d), (VarianceReducedKl(), d + kl)):
        trainer.model.zero_grad(set_to_none=True)
        (-advantage * student.gather(1, target)).mean().backward(retain_graph=True)
        expected = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
        term, own = distillation_gradient(trainer, batch, teacher, estimator)
        assert same(own, expected)
        assert term.reverse_kl == pytest.approx(-float(d.mean()), abs=1e-5)


@pytest.mark.parametrize("estimator", [TopKKl(k=8), SampledKl(), VarianceReducedKl(), ForwardKl()])
def test_a_distillation_runs_with_each_estimator(world, base, teacher, tmp_path, estimator):
    attempt, _ = distilled(world, tmp_path, opd_params(max_steps=2, estimator=estimator), base, teacher)
    assert not attempt.has_weights_of(base)
    assert len([row for row in attempt.metrics() if "reverse_kl" in row]) == 2


@pytest.mark.oracle("6.5")
def test_without_a_plateau_it_is_plain_distillation(world, base, teacher, undisturbed):
    """OPD written out: no validation, no detector, no task reward, none of the stage's own losses."""
    params, ctx = undisturbed.params, undisturbed.context()
    rows = read_prompts(world.prompts, Split.TRAIN)
    trainer = open_trainer(base, params.optimizer, params.max_steps, ctx.runtime)
    engine = open_engine(base, params.engine, ctx.runtime)
    taught = AutoModelForCausalLM.from_pretrained(teacher).eval()
    for step in range(params.max_steps):
        engine.load_weights(trainer.weights(), step)
        taken = rows_of_step(len(rows), params.prompts_per_step, step, ctx.seed("rows"))
        prompts = [prompt_ids(world.tokenizer, rows[index].messages) for index in taken]
        drawn = engine.generate(prompts, 1, params.sampling, ctx.seed("samples", step))
        batch = completion_batch(prompts, [rollout.completion_ids for rollout in drawn], 0)
        tokens = int(batch.mask_BT.sum())

        def loss(forward, micro, tokens=tokens):
            with torch.no_grad():
                teacher_logits = taught(micro.input_BT, attention_mask=micro.attention_BT).logits
            own, other = forward.logits_BTV[micro.mask_BT], teacher_logits[micro.mask_BT]
            log_ratio = own.detach().log_softmax(-1) - other.log_softmax(-1)
            per_token = torch.zeros(micro.mask_BT.shape)
            per_token[micro.mask_BT] = (own.softmax(-1) * log_ratio).sum(-1)
            return per_token.sum() / tokens

        trainer.step([(batch, loss)])
    trained = load_file(undisturbed.out("checkpoint") / "model.safetensors")
    for name, tensor in trainer.model.named_parameters():
        torch.testing.assert_close(trained[name], tensor.detach(), rtol=0, atol=1e-6)


def test_curve_and_decision_are_those_of_the_detector(undisturbed):
    found = switch(undisturbed)
    assert [point["step"] for point in found["curve"]] == [0, 2, 4, 5]
    assert (found["switch_step"], found["reason"]) == (5, "max_steps")
    logged = [row for row in undisturbed.metrics() if "validation" in row]
    assert [(row["step"], row["validation"]) for row in logged] == [
        (point["step"], point["score"]) for point in found["curve"]
    ]


@pytest.mark.parametrize(
    ("every", "patience", "min_steps", "expected"), [(1, 2, 0, 2), (2, 2, 0, 4), (1, 1, 3, 3)]
)
def test_a_flat_validation_stops_at_the_right_step(
    world, base, tmp_path, every, patience, min_steps, expected
):
    """A student that is its own teacher stands still, so its score does."""
    plateau = PlateauParams(
        evaluate_every=every, prompts=4, samples=2, patience=patience, min_steps=min_steps
    )
    attempt, notices = distilled(world, tmp_path, opd_params(plateau, max_steps=9), base, base)
    found = switch(attempt)
    assert (found["switch_step"], found["reason"]) == (expected, "plateau")
    assert len({point["score"] for point in found["curve"]}) == 1
    detector = PlateauDetector(plateau, 9)
    decisions = [
        detector.update(point["step"], point["score"], point["standard_error"]) for point in found["curve"]
    ]
    assert decisions == ["continue"] * (len(decisions) - 1) + ["plateau"]
    assert read_record(attempt.out("checkpoint")).stages[-1] == StageRecord("opd", expected)
    assert notices == []


def test_running_into_max_steps_is_told(world, base, tmp_path):
    attempt, notices = distilled(world, tmp_path, opd_params(max_steps=1), base, base)
    assert switch(attempt)["reason"] == "max_steps"
    assert "max_steps=1" in notices[0]
    flat = switch(attempt)["curve"][-1]["zero_variance"] == 1.0
    assert [("nothing to learn" in notice) for notice in notices[1:]] == [True] * flat
    table = read(attempt.out("rollouts"), "rollouts/1")
    assert contract("rollouts/1").check(table) == []
    assert set(table.column("step").to_pylist()) == {0, 1}  # what decided the switch can be audited


@pytest.mark.oracle("6.3")
def test_the_teacher_speaks_once_a_step_and_never_after_the_switch(
    world, base, teacher, tmp_path, monkeypatch
):
    calls = []
    real = Teacher.distribution
    monkeypatch.setattr(Teacher, "distribution", lambda self, *asked: calls.append(1) or real(self, *asked))
    retired = []
    leave = Teacher.retire
    monkeypatch.setattr(Teacher, "retire", lambda self: retired.append(len(calls)) or leave(self))
    distilled(world, tmp_path, opd_params(max_steps=3), base, teacher)
    assert len(calls) == 3
    assert retired == [3]


@pytest.mark.oracle("6.6")
def test_stopped_at_every_step_or_killed_equals_undisturbed(world, base, teacher, undisturbed, tmp_path):
    """Steps 2 and 4 are validation boundaries; a kill at step 2 comes after its training was logged."""
    stopped = world.attempt(tmp_path / "stopped", undisturbed.params, policy=base, teacher=teacher)
    assert stopped.stopped_at_each_step(run) == 4
    saving = world.attempt(
        tmp_path / "saving", undisturbed.params, {"save_every_s": 1e-9}, policy=base, teacher=teacher
    )
    losing = world.attempt(tmp_path / "losing", undisturbed.params, policy=base, teacher=teacher)
    for killed in (saving, losing):
        killed.killed(run)
        run(killed.context())
    for attempt in (stopped, saving, losing):
        assert attempt.has_weights_of(undisturbed.out("checkpoint"))
        assert switch(attempt) == switch(undisturbed)
        assert attempt.metrics() == undisturbed.metrics()


def test_a_policy_with_rl_behind_it_is_refused(world, base, teacher, tmp_path):
    late = world.with_record(base, "after-rl", rl_steps=9)
    with pytest.raises(GuardError, match="9 RL steps"):
        distilled(world, tmp_path, opd_params(), late, teacher)


def test_a_mixture_of_experts_is_refused(world, mixture, teacher, tmp_path):
    with pytest.raises(GuardError, match=r"mixture of experts \(mixtral\).*train a dense model"):
        distilled(world, tmp_path, opd_params(), mixture, teacher)


def test_a_policy_of_another_tokenizer_is_refused_before_anything_runs(world, base, tmp_path):
    from stages.prompts.tokenizer import train_tokenizer

    other = world.random_model("other", seed=1, tokenizer=train_tokenizer(["how", "many"] * 3, 320))
    with pytest.raises(GuardError, match="share the student's tokenizer"):
        distilled(world, tmp_path, opd_params(), base, other)


@pytest.mark.parametrize("estimator", [SampledKl(), VarianceReducedKl()])
def test_a_sampled_form_needs_an_engine_that_samples_the_student(estimator):
    bfloat16 = EngineParams(dtype="bfloat16")
    with pytest.raises(
        ValueError, match=r"set engine.dtype to float32, or estimator.kind to full_vocabulary"
    ):
        opd_params(estimator=estimator, engine=bfloat16)
    assert opd_params(engine=bfloat16).engine == bfloat16


def test_parameters_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="min_steps must not exceed"):
        opd_params(PlateauParams(min_steps=6))
    with pytest.raises(ValueError, match="full distributions"):
        opd_params(sampling=Sampling(top_k=5))
