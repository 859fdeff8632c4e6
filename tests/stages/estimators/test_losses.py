"""Losses per token against scalar formulas, and their sums against every split and order of the rows."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import GuardError
from stages.estimators.losses import (
    RatioSums,
    clipped_policy_gradient_BT,
    masked_sum,
    ratio_metrics,
    ratio_sums,
    sequence_mean_B,
    token_mean,
)
from stages.estimators.replay import elite_weights, replay_nll_B

B, T, D, V = 6, 5, 4, 7


@pytest.mark.parametrize("advantage", [1.5, -0.5])
@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.9, 1.0, 1.2, 1.27, 1.29, 3.0])
def test_clipping_is_pessimistic_and_asymmetric(ratio, advantage):
    logprob = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    old = torch.zeros(1, 1, dtype=torch.float64)
    loss = clipped_policy_gradient_BT(logprob, old, torch.tensor([[advantage]]), clip_low=0.2, clip_high=0.28)
    (grad,) = torch.autograd.grad(loss.sum(), logprob)
    clipped = min(max(ratio, 0.8), 1.28)
    assert loss.item() == pytest.approx(-min(ratio * advantage, clipped * advantage), abs=1e-12)
    moves_away = ratio > 1.28 if advantage > 0 else ratio < 0.8
    assert grad.item() == pytest.approx(0.0 if moves_away else -ratio * advantage, abs=1e-12)


def test_first_update_has_the_gradient_of_reinforce():
    logprobs = torch.randn(B, T, dtype=torch.float64, requires_grad=True)
    advantages_B1 = torch.randn(B, 1, dtype=torch.float64)
    loss = clipped_policy_gradient_BT(logprobs, logprobs.detach(), advantages_B1)
    (grad,) = torch.autograd.grad(loss.sum(), logprobs)
    torch.testing.assert_close(grad, -advantages_B1.expand(B, T), rtol=0, atol=1e-15)


def test_only_the_policy_is_differentiated():
    logprobs, old, advantages = (torch.randn(2, 3, requires_grad=True) for _ in range(3))
    loss = clipped_policy_gradient_BT(logprobs, old, advantages).sum()
    assert torch.autograd.grad(loss, [old, advantages], allow_unused=True) == (None, None)


# A batch's gradient does not depend on how its rows are split into micro-batches, nor on their order.


class Batch:
    def __init__(self):
        g = torch.Generator().manual_seed(7)
        self.weights = torch.randn(D, V, dtype=torch.float64, generator=g).requires_grad_()
        self.features = torch.randn(B, T, D, dtype=torch.float64, generator=g)
        self.targets = torch.randint(V, (B, T), generator=g)
        self.mask = torch.arange(T)[None] < torch.tensor([5, 1, 2, 5, 3, 4])[:, None]
        self.advantages = torch.randn(B, 1, dtype=torch.float64, generator=g)
        self.old = self.logprobs(range(B)).detach() + 0.3 * torch.randn(
            B, T, dtype=torch.float64, generator=g
        )
        self.prompts = ["a", "b", "a", "a", "c", "b"]

    def logprobs(self, rows):
        logits = self.features[list(rows)] @ self.weights
        return logits.log_softmax(-1).gather(-1, self.targets[list(rows), :, None])[..., 0]

    def policy_loss(self, rows):
        return clipped_policy_gradient_BT(self.logprobs(rows), self.old[rows], self.advantages[rows])

    def by_token(self, rows):
        return token_mean(self.policy_loss(rows), self.mask[rows], int(self.mask.sum()))

    def by_sequence(self, rows):
        return sequence_mean_B(self.policy_loss(rows), self.mask[rows]).sum() / B

    def by_elite(self, rows):
        weights = torch.tensor(elite_weights(self.prompts), dtype=torch.float64)[rows]
        return (weights * replay_nll_B(self.logprobs(rows), self.mask[rows])).sum()

    def gradient(self, loss, parts):
        (grad,) = torch.autograd.grad(sum(loss(part) for part in parts), self.weights)
        return grad


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(B)), st.lists(st.integers(1, B - 1), unique=True))
def test_gradient_is_the_same_for_every_split_and_order(order, cuts):
    batch = Batch()
    ends = [0, *sorted(cuts), B]
    parts = [list(order[a:b]) for a, b in pairwise(ends)]
    for loss in (batch.by_token, batch.by_sequence, batch.by_elite):
        whole = batch.gradient(loss, [list(range(B))])
        assert whole.norm() > 1e-3
        torch.testing.assert_close(batch.gradient(loss, parts), whole, rtol=0, atol=1e-12)


def test_a_fully_masked_row_changes_nothing():
    batch = Batch()
    rows = list(range(B))
    loss, mask = batch.policy_loss(rows), batch.mask
    longer_loss = torch.cat([loss, torch.full((1, T), 9.0)])
    longer_mask = torch.cat([mask, torch.zeros(1, T, dtype=torch.bool)])
    for a, b in [
        (masked_sum(loss, mask), masked_sum(longer_loss, longer_mask)),
        (
            token_mean(loss, mask, int(mask.sum())),
            token_mean(longer_loss, longer_mask, int(longer_mask.sum())),
        ),
        (sequence_mean_B(loss, mask).sum(), sequence_mean_B(longer_loss, longer_mask).sum()),
    ]:
        assert a.item() == b.item()


def test_masked_tokens_do_not_touch_the_gradient_of_the_others():
    """Tokens that the environment wrote are context, not actions."""
    batch = Batch()
    rows = list(range(B))
    before = batch.gradient(batch.by_token, [rows])
    batch.targets = torch.where(batch.mask, batch.targets, (batch.targets + 1) % V)
    batch.features = torch.where(batch.mask[..., None], batch.features, 5 + batch.features)
    batch.old = torch.where(batch.mask, batch.old, torch.zeros_like(batch.old))
    torch.testing.assert_close(batch.gradient(batch.by_token, [rows]), before, rtol=0, atol=1e-15)


def test_placeholders_that_are_not_numbers_stay_behind_the_mask():
    loss = torch.tensor([[1.0, float("nan")], [2.0, float("inf")]], requires_grad=True)
    mask = torch.tensor([[1, 0], [1, 0]])
    for total in (masked_sum(loss, mask), sequence_mean_B(loss, mask).sum()):
        (grad,) = torch.autograd.grad(total, loss)
        assert total.item() == 3.0
        assert torch.equal(grad, mask.float())


def test_a_batch_without_trainable_tokens_is_refused():
    with pytest.raises(GuardError, match="no trainable token"):
        token_mean(torch.ones(1, 2), torch.zeros(1, 2), 0)


# ratio metrics


def test_unmoved_policy_has_neutral_metrics():
    logprobs = -torch.rand(B, T)
    metrics = ratio_metrics(logprobs, logprobs.clone(), torch.ones(B, T))
    assert metrics == {"clip_fraction": 0.0, "k1": 0.0, "k3": 0.0, "ess": 1.0}


def test_expected_k1_and_k3_are_the_divergence_of_the_old_policy_from_the_new():
    g = torch.Generator().manual_seed(11)
    old, new = (torch.randn(V, dtype=torch.float64, generator=g).log_softmax(-1) for _ in range(2))
    divergence = (old.exp() * (old - new)).sum().item()
    expected = {"k1": 0.0, "k3": 0.0}
    for token in range(V):
        metrics = ratio_metrics(new[None, token, None], old[None, token, None], torch.ones(1, 1))
        assert metrics["k3"] >= 0
        for name in expected:
            expected[name] += old[token].exp().item() * metrics[name]
    assert expected == pytest.approx({"k1": divergence, "k3": divergence}, abs=1e-12)


def test_ratio_metrics_of_known_ratios():
    ratios = torch.tensor([[0.5, 1.0, 1.25, 2.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1]])
    metrics = ratio_metrics(
        ratios.log(), torch.zeros(1, 4, dtype=torch.float64), mask, clip_low=0.2, clip_high=0.28
    )
    assert metrics["clip_fraction"] == 0.5
    assert metrics["ess"] == pytest.approx(4.75**2 / (4 * (0.25 + 1 + 1.5625 + 4)))
    assert metrics["k1"] == pytest.approx(-math.log(0.5 * 1.25 * 2) / 4)


def test_ratio_sums_add_up_over_micro_batches_and_skip_masked_tokens():
    batch = Batch()
    new = batch.logprobs(range(B)).detach()
    poisoned = torch.where(batch.mask, batch.old, torch.full_like(batch.old, -float("inf")))
    parts = sum(
        (ratio_sums(new[i : i + 2], poisoned[i : i + 2], batch.mask[i : i + 2]) for i in (0, 2, 4)),
        RatioSums(),
    )
    assert parts.tokens == int(batch.mask.sum())
    assert parts.metrics() == pytest.approx(ratio_metrics(new, batch.old, batch.mask), rel=1e-12)
    assert 0 < parts.metrics()["ess"] <= 1
