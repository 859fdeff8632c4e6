"""The trainer: gradients do not depend on micro-batches, and a resumed step is the undisturbed one."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages.engines.batch import TokenBatch, completion_batch, token_batch
from stages.engines.chat import answer_ids, answer_text, prompt_ids
from stages.engines.params import OptimizerParams, Schedule, ValueHeadParams
from stages.engines.supervised import cross_entropy
from stages.engines.torch_trainer import TorchTrainer, learning_rate_factor, open_trainer
from stages.errors import PosttrainError
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
        loss(trainer.forward(micro), micro).backward()
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
        log_p = trainer.forward(batch).logits_BTV.log_softmax(-1)
        picked = log_p.gather(-1, batch.target_BT.unsqueeze(-1)).squeeze(-1)
        expected = -picked[batch.mask_BT].mean()
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


# the critic


CRITIC = ValueHeadParams(learning_rate=0.05)


def critic_loss(forward, micro):
    """Values towards 2; the log-probs only as much as makes the model move."""
    wrong_BT = (forward.values_BT - 2.0).where(micro.mask_BT, torch.zeros(()))
    return wrong_BT.square().sum() + 1e-3 * forward.logits_BTV.square().mean()


def critic_trainer(base):
    params = OptimizerParams(learning_rate=1e-3, warmup_steps=0, schedule=Schedule.CONSTANT)
    return open_trainer(base, params, 10, Runtime(threads=1), CRITIC)


def test_a_critic_starts_at_zero_learns_and_stays_out_of_the_export(base, tmp_path):
    trainer = critic_trainer(base)
    batch = completion_batch([[2, 40, 3], [2, 41, 42, 3]], [[50, 51, 1], [52, 1]], 0)
    assert not trainer.score(batch, 1.0).values_BT.any()
    for _ in range(60):
        trainer.step([(batch, critic_loss)])
    values = trainer.score(batch, 1.0).values_BT
    assert values[batch.mask_BT].mean() == pytest.approx(2.0, abs=0.3) and not values[~batch.mask_BT].any()
    names = trainer.weights().keys()
    assert names == open_trainer(base, OptimizerParams(), 1, Runtime()).weights().keys()
    trainer.model.save_pretrained(tmp_path)
    assert not any("value" in name for name in load_file(tmp_path / "model.safetensors"))


def test_a_critic_comes_back_with_its_moments(base, tmp_path):
    batch = completion_batch([[2, 40, 3], [2, 41, 42, 3]], [[50, 51, 1], [52, 1]], 0)
    undisturbed, killed = critic_trainer(base), critic_trainer(base)
    for _ in range(3):
        undisturbed.step([(batch, critic_loss)])
        killed.step([(batch, critic_loss)])
    killed.save(tmp_path)
    resumed = critic_trainer(base)
    resumed.load(tmp_path)
    assert [g["lr"] for g in resumed.optimizer.param_groups] == [1e-3, 0.05]
    for trainer in (undisturbed, resumed):
        trainer.step([(batch, critic_loss)])
    one, other = (trainer.score(batch, 1.0) for trainer in (undisturbed, resumed))
    assert torch.equal(one.values_BT, other.values_BT) and torch.equal(one.logprobs_BT, other.logprobs_BT)


def test_a_critic_in_surprise_does_not_shorten_the_models_step(base):
    """Each is clipped by its own norm."""
    batch = completion_batch([[2, 40, 3], [2, 41, 42, 3]], [[50, 51, 1], [52, 1]], 0)

    def loss(forward, micro, weight):
        return critic_loss(forward, micro) * 1e-3 + weight * forward.values_BT.sum()

    weights = []
    for weight in (0.0, 1e6):
        trainer = critic_trainer(base)
        # at zero, where it starts, not even a head that is not detached has a gradient to pass on
        torch.nn.init.normal_(trainer.value_head.weight, generator=torch.Generator().manual_seed(0))
        trainer.step([(batch, lambda forward, micro, w=weight: loss(forward, micro, w))])
        weights.append([p.detach().clone() for p in trainer.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


# the step and the score


def row_losses(count):
    return [(batch, cross_entropy(batch, [])) for batch in (rows(3, seed) for seed in range(count))]


def test_a_step_takes_every_term_once_and_returns_the_models_norm(checkpoint):
    """Clipped to its bound, and of this step's gradient alone."""
    clipped = OptimizerParams(warmup_steps=0, clip_norm=1e-2)
    trainer = open_trainer(checkpoint, clipped, 10, Runtime(micro_batch_rows=2), CRITIC)
    own = open_trainer(checkpoint, clipped, 10, Runtime())
    expected = sum(gradient(own, batch, 8) for batch in (rows(3, 0), rows(3, 1)))
    norm = trainer.step(row_losses(2))
    assert norm == pytest.approx(float(expected.norm()), rel=1e-4)
    found = torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])
    torch.testing.assert_close(found, expected / expected.norm() * 1e-2, rtol=1e-3, atol=1e-7)
    trainer.step(row_losses(1))
    assert trainer.model.lm_head.weight.grad.norm() <= 1.001e-2


@pytest.mark.parametrize("where", ["logits_BTV", "values_BT"])
def test_a_gradient_that_is_not_finite_moves_nothing(base, where):
    trainer = critic_trainer(base)
    batch = completion_batch([[2, 40, 3]], [[50, 51, 1]], 0)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    with pytest.raises(PosttrainError, match="gradient is not finite, so no step was taken: lower"):
        trainer.step([(batch, lambda forward, _: getattr(forward, where).sum() * float("nan"))])
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert not trainer.value_head.weight.any()


def test_scores_are_at_the_temperature_and_in_the_places_of_the_batch(checkpoint):
    trainer = open_trainer(checkpoint, OPTIMIZER, 10, Runtime(micro_batch_rows=2), CRITIC)
    torch.nn.init.normal_(trainer.value_head.weight, generator=torch.Generator().manual_seed(0))
    batch = rows(7)
    with torch.no_grad():
        outputs = trainer.model(batch.input_BT, output_hidden_states=True)
        values_BT = trainer.value_head(outputs.hidden_states[-1]).squeeze(-1).where(batch.mask_BT, 0.0)
    logp_BTV = (outputs.logits / 0.7).log_softmax(-1)
    expected_BT = logp_BTV.gather(-1, batch.target_BT.unsqueeze(-1)).squeeze(-1).where(batch.mask_BT, 0.0)
    found = trainer.score(batch, 0.7)
    torch.testing.assert_close(found.logprobs_BT, expected_BT, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.values_BT, values_BT, rtol=0, atol=1e-5)


def test_the_critic_has_its_own_learning_rate_and_the_schedule(base):
    optimizer = OptimizerParams(learning_rate=1e-3, warmup_steps=4, schedule=Schedule.CONSTANT)
    trainer = open_trainer(base, optimizer, 10, Runtime(threads=1), CRITIC)
    batch = completion_batch([[2, 40, 3]], [[50, 51, 1]], 0)
    for share in (0.25, 0.5, 0.75, 1.0):
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        assert rates == pytest.approx([1e-3 * share, 0.05 * share])
        trainer.step([(batch, critic_loss)])


def test_the_model_is_never_in_training_mode(model):
    """Dropout would make the ratio of a fresh sample another than 1."""
    assert not TorchTrainer(model.train(), OPTIMIZER, 10, Runtime()).model.training
