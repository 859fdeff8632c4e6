"""PPO and GSPO against their papers' formulas, written with scalars and loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.losses import BatchCounts, aggregate, clipped_BT, clipped_surrogate_BT
from stages.estimators.params import Gspo, Level, SequenceMean, TokenMean

ONE = torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize("advantage", [1.5, -0.5, 0.0])
@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.81, 0.9, 1.0, 1.2, 1.27, 1.29, 3.0])
def test_clipping_is_pessimistic_and_asymmetric(ratio, advantage):
    logprob = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    args = (torch.zeros(1, 1).double(), torch.tensor([[advantage]]).double(), ONE, Level.TOKEN, 0.2, 0.28)
    loss = clipped_surrogate_BT(logprob, *args)
    (gradient,) = torch.autograd.grad(loss.sum(), logprob)
    clipped = min(max(ratio, 0.8), 1.28)
    assert loss.item() == pytest.approx(-min(ratio * advantage, clipped * advantage), abs=1e-12)
    stopped = (advantage > 0 and ratio > 1.28) or (advantage < 0 and ratio < 0.8)
    assert gradient.item() == pytest.approx(0.0 if stopped else -ratio * advantage, abs=1e-12)
    assert clipped_BT(logprob, *args).item() == stopped


@pytest.mark.parametrize("log_ratio", [25.0, -25.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_a_ratio_held_at_the_bound_does_not_move_and_is_counted(log_ratio, advantage):
    logprob = torch.tensor([[log_ratio]], requires_grad=True)
    args = (torch.zeros(1, 1), torch.tensor([[advantage]]), ONE, Level.TOKEN, 0.2, 0.28)
    loss = clipped_surrogate_BT(logprob, *args)
    (gradient,) = torch.autograd.grad(loss.sum(), logprob)
    assert loss.isfinite().all() and gradient.item() == 0.0
    assert clipped_BT(logprob, *args).item() == (advantage != 0)


def group(seed):
    drawn = torch.Generator().manual_seed(seed)
    logprobs, noise = (torch.randn(5, 4, dtype=torch.float64, generator=drawn) for _ in range(2))
    advantages_B1 = torch.randn(5, 1, dtype=torch.float64, generator=drawn)
    mask = torch.rand(5, 4, generator=drawn) < 0.7
    mask[torch.arange(5), torch.randint(4, (5,), generator=drawn)] = True
    return logprobs.requires_grad_(), (logprobs + 0.3 * noise).detach(), advantages_B1, mask


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_gspo_is_its_papers_formula(seed):
    """arXiv 2507.18071, Eq. 5 and 7, and the gradient of its Eq. 10."""
    logprobs, old, advantages, mask = group(seed)
    gspo = Gspo(clip_low=0.05, clip_high=0.1)
    args = (old, advantages, mask, Level.GEOMETRIC, gspo.clip_low, gspo.clip_high)
    loss = aggregate(clipped_surrogate_BT(logprobs, *args), mask, SequenceMean(), BatchCounts.of(mask))
    (found,) = torch.autograd.grad(loss, logprobs)
    logprobs, objective, slopes = logprobs.detach(), 0.0, torch.zeros(5, 4, dtype=torch.float64)
    for i in range(5):
        places = [t for t in range(4) if mask[i, t]]
        s = math.exp(sum(float(logprobs[i, t] - old[i, t]) for t in places) / len(places))
        A = float(advantages[i, 0])
        objective += min(s * A, min(max(s, 0.95), 1.1) * A) / 5
        stopped = (A > 0 and s > 1.1) or (A < 0 and s < 0.95)
        for t in places:
            slopes[i, t] = 0.0 if stopped else s * A / len(places) / 5
        assert clipped_BT(logprobs, *args)[i].tolist() == [t in places and stopped for t in range(4)]
    assert loss.item() == pytest.approx(-objective, abs=1e-12)
    assert torch.allclose(found, -slopes, rtol=0, atol=1e-12)


@pytest.mark.parametrize("level", [Level.TOKEN, Level.SEQUENCE])
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_ppo_is_its_papers_formula(level, seed):
    """arXiv 1707.06347, Eq. 7 with DAPO's two bounds, over tokens, and over whole sequences."""
    logprobs, old, advantages, mask = group(seed)
    loss = aggregate(
        clipped_surrogate_BT(logprobs, old, advantages, mask, level, 0.2, 0.28),
        mask,
        TokenMean() if level is Level.TOKEN else SequenceMean(),
        BatchCounts.of(mask),
    )
    terms, logprobs = [], logprobs.detach()
    for i in range(5):
        A, places = float(advantages[i, 0]), [t for t in range(4) if mask[i, t]]
        by_token = [math.exp(float(logprobs[i, t] - old[i, t])) for t in places]
        for ratio in by_token if level is Level.TOKEN else [math.prod(by_token)]:
            terms.append(min(ratio * A, min(max(ratio, 0.8), 1.28) * A))
    assert loss.item() == pytest.approx(-sum(terms) / len(terms), abs=1e-12)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6))
def test_unclipped_sequence_ratio_has_the_true_gradient_off_policy(seed):
    p = Tabular.random(4, 3, seed)
    q = p.near(seed + 1, 0.5)
    reward_S = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    loss_ST = clipped_surrogate_BT(
        p.logprobs_ST(), q.logprobs_ST(), reward_S[:, None], p.mask_ST, Level.SEQUENCE, 1.0, 1e9
    )
    found = p.expected_gradient(loss_ST.mean(-1), q)
    assert torch.allclose(flat(found), flat(p.true_gradient(reward_S)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("level", Level)
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6))
def test_first_update_has_the_gradient_of_reinforce(level, seed):
    """At every level: the sum over tokens at token level, the sequence's one value else."""
    p = Tabular.random(4, 3, seed)
    reward_S = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    log_p = p.logprobs_ST()
    loss_ST = clipped_surrogate_BT(log_p, log_p.detach(), reward_S[:, None], p.mask_ST, level, 0.2, 0.28)
    if level is not Level.TOKEN:
        loss_ST = loss_ST / 3  # every token holds the sequence's value
    found = flat(p.expected_gradient(loss_ST.sum(-1), p))
    share = 1 / 3 if level is Level.GEOMETRIC else 1.0  # the mean of the scores, not their sum
    assert torch.allclose(found, share * flat(p.true_gradient(reward_S)), rtol=0, atol=1e-10)


@pytest.mark.oracle("9.1")
@pytest.mark.parametrize("level", Level)
def test_identical_policies_clip_nothing(level):
    logprobs, _, advantages, mask = group(1)
    assert not clipped_BT(logprobs, logprobs.detach(), advantages, mask, level, 0.0, 0.0).any()


def test_only_the_policy_is_differentiated():
    logprobs, old, advantages = (torch.randn(2, 3, requires_grad=True) for _ in range(3))
    loss = clipped_surrogate_BT(logprobs, old, advantages, torch.ones(2, 3), Level.TOKEN, 0.2, 0.28)
    assert torch.autograd.grad(loss.sum(), [old, advantages], allow_unused=True) == (None, None)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("placeholder", [float("nan"), float("inf"), -float("inf")])
def test_masked_placeholders_touch_neither_value_nor_gradient(level, placeholder):
    logprobs = torch.tensor([[0.1, placeholder], [placeholder] * 2], requires_grad=True)
    old = torch.tensor([[0.0, placeholder], [placeholder] * 2])
    advantages = torch.tensor([[2.0, placeholder], [placeholder] * 2])
    args = (old, advantages, torch.tensor([[1, 0], [0, 0]]), level, 0.2, 0.28)
    loss = clipped_surrogate_BT(logprobs, *args)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    assert loss[0, 0].item() == pytest.approx(-2 * math.exp(0.1)) and not loss[0, 1] and not loss[1].any()
    assert gradient[0, 0].item() == pytest.approx(-2 * math.exp(0.1))
    assert gradient.isfinite().all() and not gradient[0, 1] and not gradient[1].any()
    assert not clipped_BT(logprobs, *args).any()


def test_a_trained_token_without_a_number_is_refused():
    lost = torch.tensor([[float("nan")]])
    with pytest.raises(GuardError, match="not a number"):
        clipped_surrogate_BT(lost, torch.zeros(1, 1), ONE, ONE, Level.TOKEN, 0.2, 0.28)
