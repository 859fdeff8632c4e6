"""Entropy against closed forms and torch.distributions."""

import math

import torch

from stages.estimators.entropy import entropy_BT as masked_entropy_BT


def entropy_BT(logits_BTV, temperature=1.0):
    return masked_entropy_BT(logits_BTV, torch.ones(logits_BTV.shape[:2], dtype=torch.bool), temperature)


def test_uniform_and_certain_distributions():
    assert math.isclose(entropy_BT(torch.zeros(1, 1, 50)).item(), math.log(50), rel_tol=1e-6)
    assert entropy_BT(torch.tensor([[[0.0, -torch.inf, -torch.inf]]])).item() == 0.0


def test_agrees_with_categorical_in_value_and_gradient():
    logits = torch.randn(2, 3, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, oracle = entropy_BT(ours), torch.distributions.Categorical(logits=theirs).entropy()
    torch.testing.assert_close(value, oracle, rtol=0, atol=1e-12)
    value.sum().backward()
    oracle.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-12)


def test_excluded_tokens_give_a_finite_gradient():
    logits = torch.tensor([[[1.0, 0.0, -torch.inf]]], requires_grad=True)
    entropy_BT(logits).sum().backward()
    assert logits.grad.isfinite().all()


def test_low_precision_is_summed_in_single_precision():
    assert entropy_BT(torch.zeros(1, 1, 8, dtype=torch.bfloat16)).dtype == torch.float32


def test_temperature_and_mask():
    logits = torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[True, False, True], [False, False, True]])
    poisoned = logits.where(mask.unsqueeze(-1), torch.full_like(logits, float("nan")))
    found = masked_entropy_BT(poisoned, mask, 0.7)
    expected = torch.distributions.Categorical(logits=logits / 0.7).entropy()
    torch.testing.assert_close(found, expected.where(mask, torch.zeros(())).double(), rtol=0, atol=1e-12)
