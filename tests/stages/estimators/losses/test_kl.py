"""Value and expected gradient of each KL estimator, against autograd of the exact KL over all sequences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.losses import (
    forward_kl_loss_BT,
    k1_BT,
    k2_BT,
    k3_BT,
    kl_loss_BT,
    refuse_as_loss,
    reverse_kl_loss_BT,
)
from stages.estimators.params import Level, Ratio, Unregularised
from stages.estimators.ratios import weights_BT

SEEDS = st.integers(0, 10**6)
KINDS = ["reverse_kl", "forward_kl"]


def exact_gradient(p, reference, prefixes, kind):
    """Of the sum over positions of the KL at each prefix, weighted by a fixed chance of the prefix."""
    total = torch.zeros((), dtype=torch.float64)
    for t, (rows, fixed) in enumerate(zip(p.table, reference.table, strict=True)):
        chance_H = prefixes.probability_S().view(len(rows), -1).sum(-1)
        assert chance_H.sum().item() == pytest.approx(1), t
        log_p, log_ref = rows.log_softmax(-1), fixed.detach().log_softmax(-1)
        one, other = (log_p, log_ref) if kind == "reverse_kl" else (log_ref, log_p)
        total = total + (chance_H * (one.exp() * (one - other)).sum(-1)).sum()
    return flat(p.gradient(total))


def sampled_gradient(p, reference, sampler, loss_ST):
    return flat(p.expected_gradient(loss_ST.sum(-1), sampler))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_each_loss_has_the_expected_gradient_of_its_name(kind, seed):
    p = Tabular.random(4, 3, seed)
    reference = p.near(seed + 1, 0.8)
    loss_ST = kl_loss_BT(kind, p.logprobs_ST(), reference.logprobs_ST(), p.mask_ST)
    found = sampled_gradient(p, reference, p, loss_ST)
    assert torch.allclose(found, exact_gradient(p, reference, p, kind), rtol=0, atol=1e-10)
    other = next(name for name in KINDS if name != kind)
    assert (found - exact_gradient(p, reference, p, other)).norm() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=10)
@given(SEEDS)
def test_on_samples_of_another_policy_the_token_ratio_restores_it(kind, seed):
    p = Tabular.random(4, 3, seed)
    reference, q = p.near(seed + 1, 0.8), p.near(seed + 2, 0.6)
    log_p = p.logprobs_ST()
    loss_ST = kl_loss_BT(kind, log_p, reference.logprobs_ST(), p.mask_ST)
    exact = exact_gradient(p, reference, q, kind)
    ratio = Ratio(level=Level.TOKEN, regulariser=Unregularised())
    weights_ST = weights_BT(log_p - q.logprobs_ST(), p.mask_ST, ratio).values_BT
    weighted = sampled_gradient(p, reference, q, weights_ST * loss_ST)
    assert torch.allclose(weighted, exact, rtol=0, atol=1e-10)
    assert (sampled_gradient(p, reference, q, loss_ST) - exact).norm() > 1e-3


@settings(deadline=None, max_examples=10)
@given(SEEDS)
def test_the_reverse_loss_is_not_the_gradient_of_the_sequence_kl_except_for_one_token(seed):
    for length in (1, 3):
        p = Tabular.random(4, length, seed)
        reference = p.near(seed + 1, 0.8)
        log_p_S, log_ref_S = p.logprobs_ST().sum(-1), reference.logprobs_ST().sum(-1).detach()
        whole = flat(p.gradient((log_p_S.exp() * (log_p_S - log_ref_S)).sum()))
        loss_ST = reverse_kl_loss_BT(p.logprobs_ST(), reference.logprobs_ST(), p.mask_ST)
        found = sampled_gradient(p, reference, p, loss_ST)
        assert torch.allclose(found, whole, rtol=0, atol=1e-10) == (length == 1)
        last = 4 ** (length - 1) * 4  # the last position answers for nothing after it
        assert torch.allclose(found[-last:], whole[-last:], rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_k1_as_a_loss_teaches_nothing_and_k3_teaches_the_forward_kl(seed):
    p = Tabular.random(4, 3, seed)
    reference = p.near(seed + 1, 0.8)
    log_p, log_ref = p.logprobs_ST(), reference.logprobs_ST().detach()
    k1 = sampled_gradient(p, reference, p, log_p - log_ref)
    assert torch.allclose(k1, torch.zeros_like(k1), rtol=0, atol=1e-10)
    assert flat(p.gradient((log_p - log_ref)[0].sum())).norm() > 0.1  # of one sample it is only noise
    k3 = sampled_gradient(p, reference, p, (log_ref - log_p).exp() - 1 - (log_ref - log_p))
    assert torch.allclose(k3, exact_gradient(p, reference, p, "forward_kl"), rtol=0, atol=1e-10)
    k2 = sampled_gradient(p, reference, p, (log_p - log_ref) ** 2 / 2)
    assert torch.allclose(k2, exact_gradient(p, reference, p, "reverse_kl"), rtol=0, atol=1e-10)


def test_a_detached_log_ratio_as_a_loss_teaches_nothing():
    p = Tabular.random(4, 3, 3)
    reference = p.near(4, 0.8)
    for value in (k1_BT, k2_BT, k3_BT):
        loss = value(p.logprobs_ST(), reference.logprobs_ST())
        assert loss.abs().sum() > 1 and not loss.requires_grad
        with pytest.raises(RuntimeError, match="does not require grad"):
            loss.sum().backward()
        beside = flat(p.gradient(p.logprobs_ST()[5].sum()))  # added to a loss, it changes no gradient
        assert torch.equal(flat(p.gradient(p.logprobs_ST()[5].sum() + loss.sum())), beside)


@settings(deadline=None, max_examples=20)
@given(SEEDS)
def test_values_k1_and_k3_are_unbiased_and_k2_is_not(seed):
    p = Tabular.random(6, 1, seed)
    reference = p.near(seed + 1, 0.8)
    log_p, log_ref = p.logprobs_ST().detach(), reference.logprobs_ST().detach()
    kl = (log_p.exp() * (log_p - log_ref)).sum().item()
    mean = {
        value: (p.probability_S() * value(log_p, log_ref)[:, 0]).sum().item()
        for value in (k1_BT, k2_BT, k3_BT)
    }
    assert mean[k1_BT] == pytest.approx(kl, abs=1e-12) and mean[k3_BT] == pytest.approx(kl, abs=1e-12)
    by_hand = sum(
        a.exp().item() * (a - b).item() ** 2 / 2 for a, b in zip(log_p[:, 0], log_ref[:, 0], strict=True)
    )
    assert mean[k2_BT] == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.oracle("9.6")
@settings(deadline=None, max_examples=20)
@given(st.floats(-40, 0), st.floats(-40, 0))
def test_k2_and_k3_are_never_negative(log_p, log_ref):
    one, other = torch.tensor([[log_p]]), torch.tensor([[log_ref]])
    assert k3_BT(one, other).item() >= 0 and k2_BT(one, other).item() >= 0
    assert k1_BT(one, other).item() == pytest.approx(log_p - log_ref, abs=1e-4)


@pytest.mark.oracle("9.1")
@pytest.mark.parametrize("kind", KINDS)
def test_equal_policies_have_no_kl_and_no_gradient_exactly(kind):
    logprobs = (-9 * torch.rand(3, 4)).requires_grad_()
    loss = kl_loss_BT(kind, logprobs, logprobs.detach().clone(), torch.ones(3, 4))
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    assert not loss.any() and not gradient.any()
    for value in (k1_BT, k2_BT, k3_BT):
        assert not value(logprobs, logprobs.clone()).any()


@pytest.mark.parametrize("loss_of", [reverse_kl_loss_BT, forward_kl_loss_BT])
@pytest.mark.parametrize("placeholder", [float("nan"), float("inf"), -float("inf")])
def test_masked_placeholders_touch_neither_value_nor_gradient(loss_of, placeholder):
    logprobs = torch.tensor([[-1.0, placeholder]], requires_grad=True)
    reference = torch.tensor([[-2.0, placeholder]], requires_grad=True)
    loss = loss_of(logprobs, reference, torch.tensor([[1, 0]]))
    gradient, none = torch.autograd.grad(loss.sum(), [logprobs, reference], allow_unused=True)
    assert none is None
    assert loss[0, 0] > 0 and gradient[0, 0] > 0
    assert loss[0, 1] == 0 and gradient[0, 1] == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("k1", r"expected gradient 0 as a loss.*take reverse_kl"),
        ("k2", r"named by its gradient.*take reverse_kl"),
        ("k3", r"gradient of the forward KL as a loss, not of the reverse one.*or forward_kl"),
        ("kl", r"kl is not a KL that can be minimised here.*take reverse_kl"),
    ],
)
def test_estimators_are_refused_as_losses_with_the_gradient_they_would_have(name, sentence):
    with pytest.raises(GuardError, match=sentence):
        refuse_as_loss(name)
    with pytest.raises(GuardError, match=sentence):
        kl_loss_BT(name, torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1))
