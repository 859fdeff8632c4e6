"""Every loss under every aggregation has one gradient, whatever the split and order of the batch's rows."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import GuardError
from stages.estimators.losses import (
    BatchCounts,
    aggregate,
    clipped_surrogate_BT,
    forward_kl_loss_BT,
    masked_sum,
    policy_gradient_BT,
    reverse_kl_loss_BT,
    sequence_mean_B,
)
from stages.estimators.params import (
    Clip,
    FixedLength,
    Level,
    Mask,
    Ratio,
    SequenceMean,
    TokenMean,
    Truncate,
)
from stages.estimators.ratios import weights_BT
from stages.estimators.replay import elite_weights, replay_nll_B

B, T, D, V = 6, 5, 4, 7
AGGREGATIONS = [TokenMean(), SequenceMean(), FixedLength(length=9)]


class Batch:
    def __init__(self):
        g = torch.Generator().manual_seed(7)
        self.weights = torch.randn(D, V, dtype=torch.float64, generator=g).requires_grad_()
        self.features = torch.randn(B, T, D, dtype=torch.float64, generator=g)
        self.targets = torch.randint(V, (B, T), generator=g)
        self.mask = torch.arange(T)[None] < torch.tensor([5, 1, 2, 5, 0, 4])[:, None]
        self.mask[3, 2] = False  # a hole: what a tool wrote
        self.advantages = torch.randn(B, 1, dtype=torch.float64, generator=g)
        noise = torch.randn(B, T, dtype=torch.float64, generator=g)
        self.old = self.logprobs(range(B)).detach() + 0.3 * noise
        self.prompts = ["a", "b", "a", "a", "c", "b"]

    def logprobs(self, rows):
        logits = self.features[list(rows)] @ self.weights
        return logits.log_softmax(-1).gather(-1, self.targets[list(rows), :, None])[..., 0]

    def gradient(self, loss, parts):
        (grad,) = torch.autograd.grad(sum(loss(part) for part in parts), self.weights)
        return grad


def weighted(level, regulariser):
    def loss_BT(batch, rows):
        logprobs, mask = batch.logprobs(rows), batch.mask[rows]
        ratio = Ratio(level=level, regulariser=regulariser, veto_below=0.6)
        weights = weights_BT(logprobs - batch.old[rows], mask, ratio)
        return policy_gradient_BT(logprobs, weights.values_BT, batch.advantages[rows], mask)

    return loss_BT


def surrogate(level):
    def loss_BT(batch, rows):
        args = (batch.old[rows], batch.advantages[rows], batch.mask[rows], level, 0.2, 0.28)
        return clipped_surrogate_BT(batch.logprobs(rows), *args)

    return loss_BT


def kl(function):
    return lambda batch, rows: function(batch.logprobs(rows), batch.old[rows], batch.mask[rows])


LOSSES = {
    "token truncate": weighted(Level.TOKEN, Truncate(high=1.2)),
    "cispo": weighted(Level.TOKEN, Clip(low=0.0, high=1.2)),
    "sequence mask": weighted(Level.SEQUENCE, Mask(low=0.1, high=9.0)),
    "geometric truncate": weighted(Level.GEOMETRIC, Truncate(high=1.2)),
    "ppo": surrogate(Level.TOKEN),
    "ppo of sequences": surrogate(Level.SEQUENCE),
    "gspo": surrogate(Level.GEOMETRIC),
    "reverse kl": kl(reverse_kl_loss_BT),
    "forward kl": kl(forward_kl_loss_BT),
}


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.kind)
@pytest.mark.parametrize("name", LOSSES)
@settings(deadline=None, max_examples=15)
@given(st.permutations(range(B)), st.lists(st.integers(1, B - 1), unique=True))
def test_gradient_is_the_same_for_every_split_and_order(name, aggregation, order, cuts):
    batch = Batch()
    counts = BatchCounts.of(batch.mask)

    def loss(rows):
        return aggregate(LOSSES[name](batch, rows), batch.mask[rows], aggregation, counts)

    parts = [list(order[a:b]) for a, b in pairwise([0, *sorted(cuts), B])]
    whole = batch.gradient(loss, [list(range(B))])
    assert whole.norm() > 1e-3
    torch.testing.assert_close(batch.gradient(loss, parts), whole, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(B)), st.lists(st.integers(1, B - 1), unique=True))
def test_replay_is_the_same_for_every_split_and_order(order, cuts):
    batch = Batch()
    batch.mask[4, 0] = True  # an elite has tokens

    def loss(rows):
        weights = torch.tensor(elite_weights(batch.prompts), dtype=torch.float64)[rows]
        return (weights * replay_nll_B(batch.logprobs(rows), batch.mask[rows])).sum()

    parts = [list(order[a:b]) for a, b in pairwise([0, *sorted(cuts), B])]
    whole = batch.gradient(loss, [list(range(B))])
    torch.testing.assert_close(batch.gradient(loss, parts), whole, rtol=0, atol=1e-12)


def test_each_aggregation_is_its_formula():
    loss = torch.tensor([[1.0, 2.0, 4.0], [8.0, 99.0, 99.0], [99.0, 99.0, 99.0], [16.0, 99.0, 32.0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 0, 1]])
    counts = BatchCounts.of(mask)
    assert counts == BatchCounts(tokens=6, sequences=3)
    assert masked_sum(loss, mask).item() == 63.0
    assert sequence_mean_B(loss, mask).tolist() == pytest.approx([7 / 3, 8.0, 0.0, 24.0])
    assert aggregate(loss, mask, TokenMean(), counts).item() == pytest.approx(63 / 6)
    assert aggregate(loss, mask, SequenceMean(), counts).item() == pytest.approx((7 / 3 + 8 + 24) / 3)
    assert aggregate(loss, mask, FixedLength(length=7), counts).item() == pytest.approx(63 / 21)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.kind)
def test_a_fully_masked_row_changes_nothing(aggregation):
    batch = Batch()
    loss, mask = LOSSES["ppo"](batch, list(range(B))), batch.mask
    longer_loss = torch.cat([loss, torch.full((1, T), 9.0)])
    longer_mask = torch.cat([mask, torch.zeros(1, T, dtype=torch.bool)])
    assert BatchCounts.of(longer_mask) == BatchCounts.of(mask)
    before = aggregate(loss, mask, aggregation, BatchCounts.of(mask))
    after = aggregate(longer_loss, longer_mask, aggregation, BatchCounts.of(longer_mask))
    assert after.item() == before.item()


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.kind)
@pytest.mark.parametrize("name", LOSSES)
def test_masked_tokens_do_not_touch_the_gradient_of_the_others(name, aggregation):
    """Tokens that the environment wrote are context, not actions."""
    batch = Batch()
    counts = BatchCounts.of(batch.mask)

    def loss(rows):
        return aggregate(LOSSES[name](batch, rows), batch.mask[rows], aggregation, counts)

    before = batch.gradient(loss, [list(range(B))])
    batch.targets = torch.where(batch.mask, batch.targets, (batch.targets + 1) % V)
    batch.features = torch.where(batch.mask[..., None], batch.features, 5 + batch.features)
    batch.old = torch.where(batch.mask, batch.old, torch.full_like(batch.old, float("nan")))
    torch.testing.assert_close(batch.gradient(loss, [list(range(B))]), before, rtol=0, atol=1e-15)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.kind)
def test_placeholders_that_are_not_numbers_stay_behind_the_mask(aggregation):
    loss = torch.tensor([[1.0, float("nan")], [2.0, float("inf")]], requires_grad=True)
    mask = torch.tensor([[1, 0], [1, 0]])
    total = aggregate(loss, mask, aggregation, BatchCounts.of(mask))
    (grad,) = torch.autograd.grad(total, loss)
    share = 1 / 18 if isinstance(aggregation, FixedLength) else 1 / 2
    assert total.item() == pytest.approx(3.0 * share)
    assert torch.allclose(grad, share * mask.float())


def test_counts_of_micro_batches_add_up():
    mask = Batch().mask
    assert BatchCounts.of(mask[:2]) + BatchCounts.of(mask[2:]) == BatchCounts.of(mask) == BatchCounts(16, 5)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda a: a.kind)
def test_a_batch_without_trainable_tokens_is_refused(aggregation):
    mask = torch.zeros(1, 2)
    with pytest.raises(GuardError, match="no trainable token"):
        aggregate(torch.ones(1, 2), mask, aggregation, BatchCounts.of(mask))
