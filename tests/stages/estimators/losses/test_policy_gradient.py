"""The expected gradient of the policy gradient under each ratio, by exact enumeration of the sampler."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.losses import BatchCounts, aggregate, policy_gradient_BT
from stages.estimators.params import (
    Cispo,
    Clip,
    Level,
    Mask,
    Ratio,
    TokenMean,
    Truncate,
    Uncorrected,
    Unregularised,
)
from stages.estimators.ratios import weights_BT

V, T = 4, 3
REGULARISERS = {
    "none": (Unregularised(), lambda r: r),
    "uncorrected": (Uncorrected(), lambda r: 1.0),
    "truncate": (Truncate(high=1.3), lambda r: min(r, 1.3)),
    "clip": (Clip(low=0.8, high=1.2), lambda r: min(max(r, 0.8), 1.2)),
    "mask": (Mask(low=0.5, high=2.0), lambda r: r if 0.5 <= r <= 2 else 0.0),
}


def policies(seed):
    p = Tabular.random(V, T, seed)
    drawn = torch.Generator().manual_seed(seed + 2)
    return p, p.near(seed + 1, 0.7), torch.randn(V**T, dtype=torch.float64, generator=drawn)


def expected(p, q, reward_S, ratio):
    log_p = p.logprobs_ST()
    weights = weights_BT(log_p - q.logprobs_ST(), p.mask_ST, ratio)
    loss_ST = policy_gradient_BT(log_p, weights.values_BT, reward_S[:, None], p.mask_ST)
    return p.expected_gradient(loss_ST.sum(-1), q)


def by_definition(p, q, reward_S, weight_of):
    """-sum over sequences of q R sum_t w_t (onehot - p), entry by entry, without autograd."""
    blocks = [torch.zeros_like(rows) for rows in p.table]
    p_rows = [rows.detach().softmax(-1) for rows in p.table]
    q_rows = [rows.detach().softmax(-1) for rows in q.table]
    for row, tokens in enumerate(p.tokens_ST.tolist()):
        places = p.prefix_ST[row].tolist()
        steps = list(zip(range(T), places, tokens, strict=True))
        ratios = [float(p_rows[t][h, v] / q_rows[t][h, v]) for t, h, v in steps]
        chance = math.prod(float(q_rows[t][h, v]) for t, h, v in steps)
        for t, h, v in steps:
            score = -p_rows[t][h]
            score[v] += 1
            blocks[t][h] -= chance * float(reward_S[row]) * weight_of(ratios, t) * score
    return flat(blocks)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_exact_sequence_ratio_has_the_true_gradient(seed):
    p, q, reward_S = policies(seed)
    found = expected(p, q, reward_S, Ratio(level=Level.SEQUENCE, regulariser=Unregularised()))
    assert torch.allclose(flat(found), flat(p.true_gradient(reward_S)), rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_exact_token_ratio_has_the_gradient_at_the_samplers_prefixes(seed):
    """C_tok of methods.md 3(B3): at each prefix, its chance under q x sum_v p_v (Q_v - V) e_v."""
    p, q, reward_S = policies(seed)
    found = expected(p, q, reward_S, Ratio(level=Level.TOKEN, regulariser=Unregularised()))
    chance_S = q.probability_S()
    blocks = []
    for t, rows in enumerate(p.table):
        child = V ** (T - t - 1)
        mass_HV = chance_S.view(-1, V, child).sum(-1)
        value_HV = (chance_S * reward_S).view(-1, V, child).sum(-1) / mass_HV
        p_HV = rows.detach().softmax(-1)
        centred_HV = value_HV - (p_HV * value_HV).sum(-1, keepdim=True)
        blocks.append(-mass_HV.sum(-1, keepdim=True) * p_HV * centred_HV)
    assert torch.allclose(flat(found), flat(blocks), rtol=0, atol=1e-10)
    assert (flat(found) - flat(p.true_gradient(reward_S))).norm() > 1e-3


@pytest.mark.parametrize("name", REGULARISERS)
@pytest.mark.parametrize("level", Level)
@settings(deadline=None, max_examples=3)
@given(st.integers(0, 10**6))
def test_every_level_and_regulariser_has_the_expectation_of_its_formula(level, name, seed):
    p, q, reward_S = policies(seed)
    regulariser, f = REGULARISERS[name]
    weight_of = {
        Level.TOKEN: lambda ratios, t: f(ratios[t]),
        Level.SEQUENCE: lambda ratios, t: f(math.prod(ratios)),
        Level.GEOMETRIC: lambda ratios, t: f(math.prod(ratios) ** (1 / T)),
    }[level]
    found = expected(p, q, reward_S, Ratio(level=level, regulariser=regulariser))
    assert torch.allclose(flat(found), by_definition(p, q, reward_S, weight_of), rtol=0, atol=1e-10)


@pytest.mark.parametrize("level", Level)
@settings(deadline=None, max_examples=5)
@given(st.integers(0, 10**6))
def test_on_policy_every_regulariser_is_reinforce(level, seed):
    p, _, reward_S = policies(seed)
    truth = flat(p.true_gradient(reward_S))
    for regulariser, _ in REGULARISERS.values():
        found = expected(p, p, reward_S, Ratio(level=level, regulariser=regulariser))
        assert torch.allclose(flat(found), truth, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_cispo_is_its_papers_formula(seed):
    """arXiv 2506.13585, Eq. 4: 1 / sum |o_i| x sum_i sum_t sg(clip(r)) A_i log pi, to be maximised."""
    drawn = torch.Generator().manual_seed(seed)
    logprobs = torch.randn(5, 4, dtype=torch.float64, generator=drawn).requires_grad_()
    sampler, advantages = (torch.randn(5, n, dtype=torch.float64, generator=drawn) for n in (4, 1))
    mask = torch.arange(4)[None] < torch.randint(1, 5, (5,), generator=drawn)[:, None]
    cispo = Cispo(clip_low=0.4, clip_high=0.5)
    weights = weights_BT(logprobs - sampler, mask, cispo.ratio)
    loss = aggregate(
        policy_gradient_BT(logprobs, weights.values_BT, advantages, mask),
        mask,
        TokenMean(),
        BatchCounts.of(mask),
    )
    (found,) = torch.autograd.grad(loss, logprobs)
    logprobs, objective, total = logprobs.detach(), 0.0, 0
    slopes = torch.zeros(5, 4, dtype=torch.float64)
    for i in range(5):
        for t in range(int(mask[i].sum())):
            ratio = math.exp(float(logprobs[i, t] - sampler[i, t]))
            slopes[i, t] = min(max(ratio, 0.6), 1.5) * float(advantages[i, 0])
            objective += float(slopes[i, t]) * float(logprobs[i, t])
            total += 1
    assert loss.item() == pytest.approx(-objective / total, abs=1e-12)
    assert torch.allclose(found, -slopes / total, rtol=0, atol=1e-12)


def test_a_weight_or_an_advantage_with_a_gradient_is_refused():
    logprobs, weights, advantages = torch.randn(3, 2, 3)
    mask = torch.ones(2, 3)
    with pytest.raises(GuardError, match="weights of a policy gradient require a gradient: compute"):
        policy_gradient_BT(logprobs, weights.requires_grad_(), advantages, mask)
    with pytest.raises(GuardError, match="advantages of a policy gradient require a gradient: compute"):
        policy_gradient_BT(logprobs, weights.detach(), advantages.requires_grad_(), mask)


@pytest.mark.parametrize("placeholder", [float("nan"), float("inf")])
def test_masked_placeholders_touch_neither_value_nor_gradient(placeholder):
    filled = torch.tensor([[1.0, placeholder]])
    logprobs = filled.clone().requires_grad_()
    loss = policy_gradient_BT(logprobs, filled, filled, torch.tensor([[1, 0]]))
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    assert loss.tolist() == [[-1.0, 0.0]] and gradient.tolist() == [[-1.0, 0.0]]
