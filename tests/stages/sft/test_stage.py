"""SFT trains the reference answer's tokens and nothing else, each prompt once an epoch."""

import os
from collections import Counter

import pytest
import torch
from letters_domain import NAMES
from transformers import AutoModelForCausalLM

from data_contracts.checkpoint import StageRecord, check, read_record, tensor_digest, tokenizer_digest
from data_contracts.dataset import metadata, read
from data_contracts.registry import contract
from stages.engines.batch import TokenBatch, completion_batch
from stages.engines.params import OptimizerParams
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import open_trainer
from stages.errors import PosttrainError, UsageError
from stages.sft import stage
from stages.sft.params import SftParams
from stages.sft.stage import run
from stages.spec import Runtime

PARAMS = SftParams(
    steps=6,
    rows_per_step=4,  # three steps are an epoch of the twelve prompts
    optimizer=OptimizerParams(learning_rate=1e-2, warmup_steps=0),
)


@pytest.fixture(scope="module")
def undisturbed(world, base, tmp_path_factory):
    attempt = world.attempt(tmp_path_factory.mktemp("sft"), PARAMS, policy=base)
    run(attempt.context())
    return attempt


def test_checkpoint_and_history(undisturbed, base):
    checkpoint = undisturbed.out("checkpoint")
    assert check(checkpoint) == []
    record = read_record(checkpoint)
    assert record.stages == (StageRecord("base", 60), StageRecord("sft", 6))
    assert (record.base_digest, record.rl_steps) == (tensor_digest(base), 0)


def test_examples_are_the_references_and_only_answers_are_trained(undisturbed, world, base):
    table = read(undisturbed.out("examples"), "sft_examples/1")
    assert contract("sft_examples/1").check(table) == []
    assert metadata(undisturbed.out("examples"))["posttrain.tokenizer"] == tokenizer_digest(base)
    rows = {row["prompt_id"]: row for row in table.to_pylist()}
    assert set(rows) == {f"train/{name}/" for name in NAMES}
    for name in NAMES:
        row = rows[f"train/{name}/"]
        asked = [token for token, mask in zip(row["tokens"], row["loss_mask"], strict=True) if not mask]
        trained = [token for token, mask in zip(row["tokens"], row["loss_mask"], strict=True) if mask]
        assert row["tokens"] == asked + trained
        assert world.tokenizer.decode(asked) == f"<|user|>say {name}<|assistant|>"
        assert world.tokenizer.decode(trained) == f"{name}<|eos|>"


def test_the_first_loss_is_the_mean_cross_entropy_of_the_answers(undisturbed, base):
    """By transformers' own labels, row by row and unpadded, weighted by tokens."""
    model = AutoModelForCausalLM.from_pretrained(base)
    rows = read(undisturbed.out("examples"), "sft_examples/1").to_pylist()
    taken = epoch_of(undisturbed, rows)[:4]
    total = tokens = 0.0
    for row in taken:
        ids = torch.tensor([row["tokens"]])
        labels = torch.where(torch.tensor([row["loss_mask"]]) == 1, ids, -100)
        count = sum(row["loss_mask"])
        with torch.no_grad():
            total += float(model(ids, labels=labels).loss) * count
        tokens += count
    first = undisturbed.metrics()[0]
    assert first["tokens"] == tokens
    assert first["loss"] == pytest.approx(total / tokens, rel=1e-5)


def epoch_of(attempt, rows):
    """The first epoch's rows in order, from the stage's own seed."""
    from stages.cursor import rows_of_step

    seed = attempt.context().seed("rows")
    return [rows[index] for step in range(3) for index in rows_of_step(len(rows), 4, step, seed)]


def test_each_prompt_is_seen_once_an_epoch(world, base, tmp_path, monkeypatch):
    seen: list[tuple[int, ...]] = []

    def watched(prompts, answers, pad_id):
        seen.extend(map(tuple, prompts))
        return completion_batch(prompts, answers, pad_id)

    monkeypatch.setattr(stage, "completion_batch", watched)
    run(world.attempt(tmp_path, PARAMS, policy=base).context())
    first, second = seen[:12], seen[12:]
    assert Counter(first) == Counter(second)
    assert set(Counter(first).values()) == {1} and len(first) == 12
    assert first != second


def test_prompt_tokens_are_no_targets(base):
    """Whatever stands at a masked target, the gradient is the same, bit for bit."""
    trainer = open_trainer(base, PARAMS.optimizer, 1, Runtime())
    batch = completion_batch([[2, 30, 31, 3], [2, 40, 3]], [[50, 51, 1], [52, 1]], 0)
    noise = torch.randint(4, 200, batch.target_BT.shape, generator=torch.Generator().manual_seed(0))
    other = TokenBatch(
        batch.input_BT,
        torch.where(batch.mask_BT, batch.target_BT, noise),
        batch.attention_BT,
        batch.mask_BT,
        batch.rows_B,
    )
    gradients = []
    for each in (batch, other):
        trainer.model.zero_grad()
        cross_entropy(each, [])(trainer.forward(each), each).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))
    assert not torch.equal(batch.target_BT, other.target_BT)
    assert torch.equal(*gradients)
    assert gradients[0].abs().sum() > 0


def test_it_learns_the_references(undisturbed):
    losses = [row["loss"] for row in undisturbed.metrics()]
    assert losses[-1] < 0.7 * losses[0]


def test_stopped_at_every_step_or_killed_equals_undisturbed(world, base, tmp_path, undisturbed):
    stopped = world.attempt(tmp_path / "stopped", PARAMS, policy=base)
    assert stopped.stopped_at_each_step(run) == 5
    killed = world.attempt(tmp_path / "killed", PARAMS, {"save_every_s": 1e-9}, policy=base)
    killed.killed(run)
    run(killed.context())
    for attempt in (stopped, killed):
        assert attempt.has_weights_of(undisturbed.out("checkpoint"))
        assert attempt.metrics() == undisturbed.metrics()
        for name in sorted(os.listdir(undisturbed.out("examples"))):
            assert (attempt.out("examples") / name).read_bytes() == (
                undisturbed.out("examples") / name
            ).read_bytes()


def test_micro_batches_are_a_matter_of_the_machine(world, base, tmp_path, undisturbed):
    attempt = world.attempt(tmp_path, PARAMS, {"micro_batch_rows": 1}, policy=base)
    run(attempt.context())
    for own, other in zip(attempt.metrics(), undisturbed.metrics(), strict=True):
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_a_gradient_that_is_not_finite_ends_the_stage(world, base, tmp_path):
    params = PARAMS.model_copy(update={"optimizer": OptimizerParams(learning_rate=1e30, warmup_steps=0)})
    attempt = world.attempt(tmp_path, params, policy=base)
    with pytest.raises(PosttrainError, match="not finite"):
        run(attempt.context())
    assert not attempt.out("checkpoint").exists()


def test_a_domain_without_references_is_refused(world, base, tmp_path):
    mute = world.domain_of("mute-sft", "letters_domain:Mute")
    with pytest.raises(UsageError, match="'letters_domain:Mute' has no reference"):
        run(world.attempt(tmp_path, PARAMS, policy=base, domain=mute).context())
