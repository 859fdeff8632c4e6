"""The trainer: gradients do not depend on micro-batches, and a resumed step is the undisturbed one."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.engines.batch import TokenBatch, completion_batch, target_logprobs_BT, token_batch
from stages.engines.chat import answer_ids, answer_text, prompt_ids
from stages.engines.params import OptimizerParams, Schedule
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import TorchTrainer, learning_rate_factor, open_trainer
from stages.spec import Runtime

OPTIMIZER = OptimizerParams(learning_rate=1e-2, warmup_steps=2)


def rows(count: int, seed: int = 0) -> TokenBatch:
    rng = random.Random(seed)
    prompts = [[rng.randrange(4, 250) for _ in range(rng.randint(2, 7))] for _ in range(count)]
    answers = [[rng.randrange(4, 250) for _ in range(rng.randint(1, 9))] for _ in range(count)]
    return completion_batch(prompts, answers, pad_id=0)


def gradient(trainer: TorchTrainer, batch: TokenBatch, micro_rows: int) -> torch.Tensor:
    trainer.model.zero_grad(set_to_none=True)
    loss = cross_entropy(batch, [])
    for micro in batch.micro_batches(micro_rows):
        loss(trainer.logits(micro), micro).backward()
    return torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])


def shuffled(batch: TokenBatch, seed: int) -> TokenBatch:
    order = torch.randperm(len(batch.rows_B), generator=torch.Generator().manual_seed(seed))
    return TokenBatch(
        batch.input_BT[order],
        batch.target_BT[order],
        batch.attention_BT[order],
        batch.mask_BT[order],
        batch.rows_B,
    )


def test_gradient_is_independent_of_micro_batches_and_order(checkpoint: Path) -> None:
    trainer = open_trainer(checkpoint, OPTIMIZER, 10, Runtime())
    batch = rows(13)
    whole = gradient(trainer, batch, 13)
    for micro_rows in (1, 4, 5):
        assert torch.allclose(gradient(trainer, batch, micro_rows), whole, atol=1e-6)
    assert torch.allclose(gradient(trainer, shuffled(batch, 1), 4), whole, atol=1e-6)


def test_a_fully_masked_row_changes_nothing(checkpoint: Path) -> None:
    trainer = open_trainer(checkpoint, OPTIMIZER, 10, Runtime())
    tokens = [[5, 6, 7, 8], [9, 10, 11]]
    masks = [[0, 0, 1, 1], [0, 1, 1]]
    without = gradient(trainer, token_batch(tokens, masks, 0), 8)
    padded = token_batch([*tokens, [12] * 9], [*masks, [0] * 9], 0)
    assert torch.allclose(gradient(trainer, padded, 8), without, atol=1e-6)


def test_loss_is_the_mean_over_the_batches_targets(checkpoint: Path) -> None:
    trainer = open_trainer(checkpoint, OPTIMIZER, 10, Runtime())
    batch = rows(6)
    with torch.no_grad():
        expected = -target_logprobs_BT(trainer.logits(batch), batch).sum() / batch.mask_BT.sum()
    shares: list[float] = []
    trainer.micro_batch_rows = 2
    trainer.step([(batch, cross_entropy(batch, shares))])
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(float(expected), rel=1e-5)


def test_resumed_training_equals_undisturbed_training(checkpoint: Path, tmp_path: Path) -> None:
    def train(trainer: TorchTrainer, first: int, last: int) -> None:
        for step in range(first, last):
            batch = rows(8, seed=step)
            trainer.step([(batch, cross_entropy(batch, []))])

    undisturbed = open_trainer(checkpoint, OPTIMIZER, 10, Runtime())
    train(undisturbed, 0, 6)
    killed = open_trainer(checkpoint, OPTIMIZER, 10, Runtime())
    train(killed, 0, 3)
    saved = tmp_path / "step"
    saved.mkdir()
    killed.save(saved)
    resumed = open_trainer(checkpoint, OPTIMIZER, 10, Runtime())
    resumed.load(saved)
    train(resumed, 3, 6)
    for name, tensor in undisturbed.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name


def test_schedules() -> None:
    cosine = OptimizerParams(warmup_steps=4)
    factors = [learning_rate_factor(step, cosine, 104) for step in range(105)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[54] == pytest.approx(0.55)  # half of the way from 1 to 0.1
    assert factors[104] == pytest.approx(0.1)
    constant = OptimizerParams(warmup_steps=0, schedule=Schedule.CONSTANT)
    assert learning_rate_factor(500, constant, 10) == 1.0


def test_template_gives_the_prompt_that_training_continues(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "how many tracks"}]
    whole = tokenizer.apply_chat_template(
        [*messages, {"role": "assistant", "content": "select a"}], tokenize=True, return_dict=False
    )
    assert prompt_ids(tokenizer, messages) + answer_ids(tokenizer, "select a") == whole
    assert answer_text(tokenizer, answer_ids(tokenizer, "select a")) == "select a"


def test_first_eos_is_trained(tokenizer: Any) -> None:
    answer = answer_ids(tokenizer, "select a")
    batch = completion_batch([prompt_ids(tokenizer, [{"role": "user", "content": "b"}])], [answer], 0)
    assert answer[-1] == tokenizer.eos_token_id
    assert int(batch.target_BT[batch.mask_BT][-1]) == tokenizer.eos_token_id
