"""GRPO with replay as a whole stage, on a genuine model with verifier processes."""

import json
import os

import pytest
import torch
from letters_domain import Letters
from safetensors.torch import load_file

from data_contracts.checkpoint import StageRecord, check, read_record, tensor_digest
from data_contracts.dataset import read
from data_contracts.registry import contract
from stages.cursor import rows_of_step
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.engines.batch import completion_batch
from stages.engines.chat import answer_text, prompt_ids
from stages.engines.hf import HfEngine, open_engine
from stages.engines.params import OptimizerParams, Sampling, Schedule
from stages.engines.torch_trainer import TorchTrainer, open_trainer
from stages.errors import GuardError, PosttrainError
from stages.estimators.advantages import grpo
from stages.rl import policy
from stages.rl.params import PreflightParams, RlParams
from stages.rl.stage import run

REPLAY_ONLY = {"replay_nll", "replay_elites", "gradient_norm"}
WHOLE = Sampling(max_new_tokens=64)  # long enough for every answer to end: a cut one is wrong


@pytest.fixture(scope="module")
def undisturbed(world, base, archived, rl_params, tmp_path_factory):
    attempt = world.attempt(
        tmp_path_factory.mktemp("rl"), rl_params(), policy=base, archive=archived.out("archive")
    )
    run(attempt.context())
    return attempt


def rollouts(attempt):
    return read(attempt.out("rollouts"), "rollouts/1")


def groups_of(table):
    found: dict[str, list[dict]] = {}
    for row in table.to_pylist():
        found.setdefault(row["group_id"], []).append(row)
    return found


def test_checkpoint_and_history(undisturbed, base):
    checkpoint = undisturbed.out("checkpoint")
    assert check(checkpoint) == []
    record = read_record(checkpoint)
    assert record.stages == (StageRecord("base", 60), StageRecord("rl", 4))
    assert (record.base_digest, record.rl_steps) == (tensor_digest(base), 4)


def test_rollouts_meet_their_contract_and_say_which_weights_sampled(undisturbed):
    table = rollouts(undisturbed)
    assert contract("rollouts/1").check(table) == []
    assert table.num_rows == 4 * 4 * 8
    for row in table.to_pylist():
        assert set(row["weight_version"]) == {row["step"]}


def test_every_step_logs_what_is_watched(undisturbed):
    rows = undisturbed.metrics()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    watched = {"pass_rate", "distinct_correct", "entropy", "zero_variance", "truncated", "unscorable"}
    assert all(watched | {"replay_nll", "width_alarm", "logprob_gap", "ess"} <= set(row) for row in rows)
    assert all(row["replay_nll"] > 0 and row["entropy"] > 0 for row in rows)


def plain_grpo(world, base, params: RlParams, attempt) -> dict[str, torch.Tensor]:
    """GRPO written out, without archive, replay or the stage's own losses."""
    ctx, domain = attempt.context(), Letters(world.root)
    rows = read_prompts(world.prompts, Split.TRAIN)
    trainer = open_trainer(base, params.optimizer, params.steps, ctx.runtime)
    engine = open_engine(base, params.engine, ctx.runtime)
    for step in range(params.steps):
        engine.load_weights(trainer.weights(), step)
        taken = [rows[i] for i in rows_of_step(len(rows), params.prompts_per_step, step, ctx.seed("rows"))]
        prompts = [prompt_ids(world.tokenizer, row.messages) for row in taken]
        drawn = engine.generate(prompts, params.group_size, params.sampling, ctx.seed("samples", step))
        kept, tokens = [], 0
        for place, row in enumerate(taken):
            group = [rollout for rollout in drawn if rollout.prompt_index == place]
            texts = [answer_text(world.tokenizer, rollout.completion_ids) for rollout in group]
            verdicts = domain.verify([row.prompt] * len(texts), texts)
            rewards = torch.tensor([[verdict.reward or 0.0 for verdict in verdicts]])
            scorable = torch.tensor([[verdict.unscorable is None for verdict in verdicts]])
            tokens += sum(
                len(r.completion_ids) for r, counts in zip(group, scorable[0], strict=True) if counts
            )
            if rewards[scorable].unique().numel() == 2:
                values = grpo(rewards, scorable).values_PG[0].tolist()
                kept += [
                    (rollout, value)
                    for rollout, value, counts in zip(group, values, scorable[0], strict=True)
                    if counts
                ]
        if not kept:
            continue
        batch = completion_batch(
            [prompts[r.prompt_index] for r, _ in kept], [r.completion_ids for r, _ in kept], 0
        )
        advantages_B = torch.tensor([advantage for _, advantage in kept])

        def loss(forward, micro, tokens=tokens, advantages_B=advantages_B):
            logits = forward.logits_BTV
            picked = logits.gather(-1, micro.target_BT.unsqueeze(-1)).squeeze(-1)
            logprobs = (picked - logits.logsumexp(-1)).where(micro.mask_BT, torch.zeros(()))
            ratio = (logprobs - logprobs.detach()).exp()  # to the policy before this update
            surrogate = -ratio * advantages_B[micro.rows_B, None]
            return surrogate.where(micro.mask_BT, torch.zeros(())).sum() / tokens

        trainer.step([(batch, loss)])
    return dict(trainer.model.named_parameters())


@pytest.mark.oracle("6.5")
@pytest.mark.oracle("1.3")
def test_without_replay_it_is_plain_grpo_bit_for_bit(world, base, trained, rl_params, single_elites):
    """Coefficient 0, whatever the archive holds."""
    plain = rl_params(coefficient=0.0)
    off, _ = trained("off", plain)
    narrow, notices = trained("narrow", plain, archive=single_elites)
    assert narrow.has_weights_of(off.out("checkpoint"))
    assert narrow.metrics() == off.metrics()
    assert rollouts(narrow).equals(rollouts(off))
    assert notices == ["5 archived prompts have a single strategy and are not replayed"]
    written_out = plain_grpo(world, base, plain, off)
    for name, tensor in load_file(off.out("checkpoint") / "model.safetensors").items():
        assert torch.equal(tensor, written_out[name]), name
    assert not off.has_weights_of(base)


def test_replay_of_an_archive_without_width_is_refused(trained, rl_params, single_elites):
    with pytest.raises(GuardError, match="no prompt of the archive has two strategies"):
        trained("narrow", rl_params(coefficient=0.5), archive=single_elites)


@pytest.mark.oracle("1.5")
def test_replay_leaves_rewards_advantages_and_ratios_of_the_step_alone(trained, rl_params):
    with_replay, _ = trained("with", rl_params(coefficient=0.5, steps=1))
    without, _ = trained("without", rl_params(coefficient=0.0, steps=1))
    one, other = with_replay.metrics()[0], without.metrics()[0]
    assert {k: v for k, v in one.items() if k not in REPLAY_ONLY} == {
        k: v for k, v in other.items() if k not in REPLAY_ONLY
    }
    assert one["replay_nll"] > 0 and other["replay_nll"] is None
    assert rollouts(with_replay).equals(rollouts(without))
    assert not with_replay.has_weights_of(without.out("checkpoint"))


@pytest.mark.oracle("9.1")
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_right_after_sampling_the_ratio_is_one(trained, rl_params, temperature):
    sampling = Sampling(max_new_tokens=8, temperature=temperature)
    attempt, _ = trained("hot", rl_params(steps=1, prompts_per_step=12, sampling=sampling))
    row = attempt.metrics()[0]
    assert 0 <= row["logprob_gap"] < 1e-5
    assert row["clip_fraction"] == 0.0
    assert row["k1"] == pytest.approx(0, abs=1e-5) and row["k3"] == pytest.approx(0, abs=1e-9)
    assert row["ess"] == pytest.approx(1, abs=1e-6)


def test_the_ratio_stays_one_as_every_step_samples_anew(undisturbed):
    assert all(row["logprob_gap"] < 1e-5 for row in undisturbed.metrics())


@pytest.fixture
def forward_rows(monkeypatch):
    """How many rows each forward pass of the trainer had."""
    seen: list[int] = []
    real = TorchTrainer.forward
    monkeypatch.setattr(
        TorchTrainer, "forward", lambda self, batch: seen.append(len(batch.rows_B)) or real(self, batch)
    )
    return seen


def test_groups_without_variance_cost_no_forward_pass(world, trained, rl_params, write_archive, forward_rows):
    prompts = world.rules("mixed", "", "everything", "nothing", "no verdict", "", "", "")
    rows = read_prompts(prompts, Split.TRAIN)
    archive = write_archive("for-mixed", [(rows[0], rows[0].prompt.payload["value"])])
    params = rl_params(coefficient=0.0, steps=3, prompts_per_step=7)
    attempt, _ = trained("mixed", params, {"micro_batch_rows": 5}, prompts=prompts, archive=archive)
    expected = []
    for step in range(3):
        kept = 0
        for group in groups_of(rollouts(attempt)).values():
            rewards = [row["reward"] for row in group if row["reward"] is not None]
            if group[0]["step"] == step and len(set(rewards)) > 1:
                kept += len(rewards)
                assert group[0]["prompt_id"].endswith("/")  # an ordinary one
        expected += [5] * (kept // 5) + ([kept % 5] if kept % 5 else [])
    assert forward_rows == expected and sum(expected) > 0
    shares = [row["zero_variance"] for row in attempt.metrics()]
    assert all(share >= 3 / 7 for share in shares)


def test_a_step_without_any_variance_trains_nothing_and_says_so(
    world, base, trained, rl_params, write_archive, forward_rows, tmp_path
):
    prompts = world.rules("flat", "everything", "nothing")
    rows = read_prompts(prompts, Split.TRAIN)
    archive = write_archive("for-flat", [(rows[0], "mo")])
    params = rl_params(steps=3, prompts_per_step=2, coefficient=0.0, sampling=WHOLE)
    attempt, notices = trained("flat", params, prompts=prompts, archive=archive)
    assert forward_rows == []
    assert attempt.has_weights_of(base)
    assert notices[-1].startswith("3 steps had neither reward variance nor elites")
    stopped = world.attempt(tmp_path / "again", params, policy=base, prompts=prompts, archive=archive)
    assert stopped.stopped_at_each_step(run) == 2  # with moments that are still empty
    ctx = stopped.context()
    run(ctx)  # from the last saved step: the count of idle steps was saved with it
    assert ctx.notices[-1].startswith("3 steps")
    assert stopped.has_weights_of(base)


def test_groups_are_never_mixed_even_where_an_epoch_ends_within_a_step(
    world, trained, rl_params, write_archive
):
    """Two prompts, three places a step: every step takes one prompt twice."""
    prompts = world.rules("two", "", "")
    rows = read_prompts(prompts, Split.TRAIN)
    archive = write_archive("for-two", [(rows[0], rows[0].prompt.payload["value"])])
    params = rl_params(steps=3, prompts_per_step=3, coefficient=0.0)
    attempt, _ = trained("two", params, prompts=prompts, archive=archive)
    table = rollouts(attempt)
    assert contract("rollouts/1").check(table) == []
    groups = groups_of(table)
    assert len(groups) == 9
    for group in groups.values():
        assert sorted(row["sample"] for row in group) == list(range(8))
        assert len({(row["prompt_id"], row["step"], tuple(row["prompt_ids"])) for row in group}) == 1
    twice = [[row["text"] for row in group] for group in groups.values() if group[0]["step"] == 0]
    assert len({tuple(texts) for texts in twice}) == 3  # samples of their own


def test_only_the_last_steps_rollouts_are_kept(trained, rl_params):
    params = rl_params(steps=10, prompts_per_step=2, group_size=2, coefficient=0.0)
    attempt, _ = trained("ten", params)
    assert sorted(set(rollouts(attempt).column("step").to_pylist())) == list(range(2, 10))


def test_preflight_aborts_when_everything_is_truncated(world, base, trained, rl_params, tmp_path):
    params = rl_params(sampling=Sampling(max_new_tokens=1), preflight=PreflightParams())
    with pytest.raises(GuardError, match=r"\d+% of the first rollouts were cut"):
        trained("cut", params)
    assert not (tmp_path / "cut" / "out").exists()


def test_preflight_aborts_when_no_group_has_variance(world, trained, rl_params, write_archive, tmp_path):
    prompts = world.rules("hopeless", "everything", "nothing")
    archive = write_archive("for-hopeless", [(read_prompts(prompts, Split.TRAIN)[0], "mo")])
    params = rl_params(preflight=PreflightParams(), coefficient=0.0, sampling=WHOLE)
    with pytest.raises(GuardError, match=r"100% of the first groups have no reward variance"):
        trained("hopeless", params, prompts=prompts, archive=archive)
    assert not (tmp_path / "hopeless" / "out").exists()


class Deaf(HfEngine):
    """An engine whose weights are never renewed."""

    def load_weights(self, tensors, version):
        self.weight_version = version


def test_an_engine_with_other_weights_than_the_trainer_is_refused(trained, rl_params, monkeypatch):
    def open_deaf(folder, params, runtime):
        return Deaf(open_engine(folder, params, runtime).model, runtime.sample_batch_rows)

    monkeypatch.setattr(policy, "open_engine", open_deaf)
    optimizer = OptimizerParams(learning_rate=5e-2, warmup_steps=0, schedule=Schedule.CONSTANT)
    with pytest.raises(PosttrainError, match=r"at step 2 .*does not hold the trainer's weights"):
        trained("deaf", rl_params(prompts_per_step=12, optimizer=optimizer))


def test_an_archive_of_another_base_is_refused(world, trained, rl_params, teacher, tmp_path):
    with pytest.raises(GuardError, match="build the archive from its own frozen base"):
        trained("other", rl_params(), policy=teacher)
    assert not (tmp_path / "other" / "out").exists()


@pytest.mark.oracle("9.11")
def test_stopped_at_every_step_or_killed_equals_undisturbed(world, base, archived, undisturbed, tmp_path):
    def again(name, **runtime):
        return world.attempt(
            tmp_path / name, undisturbed.params, runtime, policy=base, archive=archived.out("archive")
        )

    stopped = again("stopped")
    assert stopped.stopped_at_each_step(run) == 3
    saving, losing = again("saving", save_every_s=1e-9), again("losing")
    for killed in (saving, losing):
        killed.killed(run)
        run(killed.context())
    for attempt in (stopped, saving, losing):
        assert attempt.has_weights_of(undisturbed.out("checkpoint"))
        assert attempt.metrics() == undisturbed.metrics()
        for name in os.listdir(undisturbed.out("rollouts")):
            own, other = (a.out("rollouts") / name for a in (attempt, undisturbed))
            assert own.read_bytes() == other.read_bytes()
    watched = json.loads((stopped.context().latest_step()[1] / "watched.json").read_text())
    assert len(watched["alarm"]["distinct"]) == 3


def test_sampling_without_full_support_is_refused(rl_params):
    with pytest.raises(ValueError, match="top_p"):
        rl_params(sampling=Sampling(top_p=0.9))
