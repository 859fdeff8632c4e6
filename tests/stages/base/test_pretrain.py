"""Pre-training sees training prompts only, and a stopped one goes on as if it had not been."""

import random

import pytest

from data_contracts.checkpoint import StageRecord, TrainingRecord, check, read_record
from stages.base.pretrain import MixtureRows
from stages.base.stage import run
from stages.errors import UsageError


def test_the_checkpoint_meets_its_contract_and_knows_its_history(pretrained):
    checkpoint = pretrained.out("checkpoint")
    assert check(checkpoint) == []
    assert read_record(checkpoint) == TrainingRecord((StageRecord("base", 60),), 0, "")


def test_it_learns(pretrained):
    losses = [row["loss"] for row in pretrained.metrics()]
    assert len(losses) == 60
    assert sum(losses[-10:]) / 10 < 0.5 * losses[0]


@pytest.fixture
def rows(world, tmp_path):
    params = world.base_params()
    attempt = world.attempt(tmp_path, params, tokenizer=world.root / "tokenizer")
    return MixtureRows(attempt.context(), params.mixture, world.root / "tokenizer")


def test_held_out_names_are_in_no_row(world, rows):
    shown = set()
    for step in range(12):
        batch = rows.batch(step, 64)
        whole = [
            [*ids, targets[-1]]
            for ids, targets in zip(batch.input_BT.tolist(), batch.target_BT.tolist(), strict=True)
        ]
        for text in world.tokenizer.batch_decode(whole):
            shown |= {word for word in text.lower().replace("<|assistant|>", " ").split() if word.isalpha()}
            assert not any(name in text.lower() for name in world.held_out), text
    assert set(world.values) <= shown


def test_only_answers_are_trained_and_every_one_ends(world, rows):
    batch = rows.batch(0, 24)
    for targets, mask in zip(batch.target_BT, batch.mask_BT, strict=True):
        trained = targets[mask].tolist()
        assert trained.count(world.tokenizer.eos_token_id) == 1
        assert trained[-1] == world.tokenizer.eos_token_id
        assert world.tokenizer.convert_tokens_to_ids("<|assistant|>") not in trained


def test_a_step_has_its_own_rows_whenever_it_is_asked_for(rows):
    first, second = rows.batch(3, 16), rows.batch(4, 16)
    random.random()
    assert rows.batch(3, 16).input_BT.equal(first.input_BT)
    assert first.input_BT.shape != second.input_BT.shape or not first.input_BT.equal(second.input_BT)


def test_stopped_at_every_step_equals_undisturbed(world, tmp_path):
    params = world.base_params(steps=4)
    tokenizer = world.root / "tokenizer"
    undisturbed = world.attempt(tmp_path / "a", params, tokenizer=tokenizer)
    run(undisturbed.context())
    stopped = world.attempt(tmp_path / "b", params, tokenizer=tokenizer)
    assert stopped.stopped_at_each_step(run) == 3
    killed = world.attempt(tmp_path / "c", params, tokenizer=tokenizer)
    killed.killed(run)
    run(killed.context())
    for attempt in (stopped, killed):
        assert attempt.has_weights_of(undisturbed.out("checkpoint"))
        assert attempt.metrics() == undisturbed.metrics()


def test_the_seed_chooses_the_model(world, tmp_path):
    attempts = []
    for seed in (0, 1):
        params = world.base_params(steps=1, seed=seed)
        attempts.append(world.attempt(tmp_path / str(seed), params, tokenizer=world.root / "tokenizer"))
        run(attempts[-1].context())
    assert not attempts[0].has_weights_of(attempts[1].out("checkpoint"))


def test_a_domain_without_demonstrations_is_refused(world, tmp_path):
    mute = world.domain_of("mute-base", "letters_domain:Mute")
    attempt = world.attempt(tmp_path, world.base_params(), tokenizer=world.root / "tokenizer", domain=mute)
    with pytest.raises(UsageError, match="set `model` and `teacher`"):
        run(attempt.context())
