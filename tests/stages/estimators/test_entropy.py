"""Entropy against closed forms and torch.distributions."""

import math

import torch

from stages.estimators.entropy import entropy_BT


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
