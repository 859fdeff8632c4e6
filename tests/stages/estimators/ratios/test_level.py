"""Ratios of tokens, sequences and geometric means against sums written out, and their bound."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import GuardError
from stages.estimators.params import Level
from stages.estimators.ratios import MAX_LOG_RATIO, ratio_log_BT

NAN, INF = float("nan"), float("inf")


def rows(seed, B=4, T=5):
    drawn = torch.Generator().manual_seed(seed)
    log_ratio = torch.randn(B, T, dtype=torch.float64, generator=drawn)
    mask = torch.rand(B, T, generator=drawn) < 0.7
    return log_ratio, mask


@pytest.mark.oracle("9.2")
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_sequence_ratio_is_exp_of_the_sum_and_geometric_exp_of_the_mean(seed):
    log_ratio, mask = rows(seed)
    found = {level: ratio_log_BT(log_ratio, mask, level).values_BT.exp().tolist() for level in Level}
    for row, (values, kept) in enumerate(zip(log_ratio.tolist(), mask.tolist(), strict=True)):
        trained = [value for value, keep in zip(values, kept, strict=True) if keep]
        for place, keep in enumerate(kept):
            expected = (
                {
                    Level.TOKEN: math.exp(values[place]),
                    Level.SEQUENCE: math.exp(math.fsum(trained)),
                    Level.GEOMETRIC: math.exp(math.fsum(trained) / len(trained)),
                }
                if keep
                else dict.fromkeys(Level, 1.0)
            )
            for level in Level:
                assert found[level][row][place] == pytest.approx(expected[level], rel=1e-12)


@pytest.mark.oracle("9.1")
@pytest.mark.parametrize("level", Level)
def test_identical_log_probs_have_ratio_one_exactly(level):
    logprobs = -torch.rand(3, 4, dtype=torch.float32) * 9
    found = ratio_log_BT(logprobs - logprobs.clone(), torch.ones(3, 4), level)
    assert torch.equal(found.values_BT.exp(), torch.ones(3, 4)) and found.bounded == 0


@pytest.mark.parametrize("level", Level)
def test_gradient_of_each_level(level):
    log_ratio, mask = rows(3)
    mask[0] = torch.tensor([True, False, True, True, False])
    log_ratio.requires_grad_()
    (gradient,) = torch.autograd.grad(ratio_log_BT(log_ratio, mask, level).values_BT[0].sum(), log_ratio)
    slope = {Level.TOKEN: 1.0, Level.SEQUENCE: 3.0, Level.GEOMETRIC: 1.0}[level]
    assert torch.allclose(gradient[0], slope * mask[0].double(), rtol=0, atol=1e-15)
    assert not gradient[1:].any()


def test_ratios_beyond_the_bound_are_held_there_and_counted():
    log_ratio = torch.tensor([[15.0, 15.0, 0.0], [-25.0, 1.0, 30.0], [-INF, 0.0, 0.0], [20.0, -20.0, 0.0]])
    mask = torch.ones(4, 3)
    token = ratio_log_BT(log_ratio, mask, Level.TOKEN)
    assert token.bounded == 3
    assert token.values_BT.tolist() == [[15, 15, 0], [-20, 1, 20], [-20, 0, 0], [20, -20, 0]]
    sequence = ratio_log_BT(log_ratio, mask, Level.SEQUENCE)
    assert sequence.bounded == 2  # rows, not tokens
    assert sequence.values_BT[:, 0].tolist() == [MAX_LOG_RATIO, 6, -MAX_LOG_RATIO, 0]
    geometric = ratio_log_BT(log_ratio, mask, Level.GEOMETRIC)
    assert geometric.bounded == 1
    assert geometric.values_BT[:, 0].tolist() == [10, 2, -MAX_LOG_RATIO, 0]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("placeholder", [NAN, INF, -INF])
def test_masked_placeholders_touch_neither_values_nor_gradient(level, placeholder):
    log_ratio = torch.tensor([[0.5, placeholder, 0.25], [placeholder] * 3], requires_grad=True)
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])
    found = ratio_log_BT(log_ratio, mask, level)
    (gradient,) = torch.autograd.grad(found.values_BT.exp().sum(), log_ratio)
    clean = ratio_log_BT(torch.tensor([[0.5, 0.0, 0.25], [0, 0, 0]]), mask, level)
    assert torch.equal(found.values_BT, clean.values_BT) and found.bounded == 0
    assert torch.equal(found.values_BT[mask == 0], torch.zeros(4))
    assert gradient.isfinite().all() and not gradient[mask == 0].any()


@pytest.mark.parametrize("level", Level)
def test_a_trained_token_without_a_number_is_refused(level):
    with pytest.raises(GuardError, match="record the sampler's log-prob of every token"):
        ratio_log_BT(torch.tensor([[0.0, NAN]]), torch.tensor([[1, 1]]), level)
    if level is not Level.TOKEN:
        with pytest.raises(GuardError, match="not a number"):
            ratio_log_BT(torch.tensor([[INF, -INF]]), torch.tensor([[1, 1]]), level)
