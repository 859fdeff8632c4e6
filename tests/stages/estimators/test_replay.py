"""The replay terms on tabular softmaxes: oracle 1.4 of methods.md and what each alternative is."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from benchmarks.proof.tabular import Tabular
from stages.errors import GuardError
from stages.estimators.replay import (
    elite_weights,
    floor_weights_B,
    jensen_shannon_BT,
    narrow_prompts,
    replay_nll_B,
)

seeds = given(seed=st.integers(0, 10**6))
brief = settings(deadline=None, max_examples=20)


@pytest.mark.oracle("1.4")
@seeds
@brief
def test_gradient_of_replay_is_policy_minus_uniform_over_elites(seed):
    """One token per answer; prompt a has elites {0, 3}, b has {1, 2, 4}, c has {5}."""
    elites = [("a", 0), ("b", 1), ("a", 3), ("b", 2), ("c", 5), ("b", 4)]
    generator = torch.Generator().manual_seed(seed)
    logits = {p: torch.randn(6, dtype=torch.float64, generator=generator).requires_grad_() for p in "abc"}
    logprobs_BT = torch.stack([logits[p].log_softmax(-1)[y] for p, y in elites])[:, None]
    weights = torch.tensor(elite_weights([p for p, _ in elites]), dtype=torch.float64)
    coefficient = 0.1
    loss = coefficient * (weights * replay_nll_B(logprobs_BT, torch.ones(len(elites), 1))).sum()
    loss.backward()
    for prompt, own in {"a": [0, 3], "b": [1, 2, 4], "c": [5]}.items():
        uniform = torch.zeros(6, dtype=torch.float64)
        uniform[own] = 1 / len(own)
        expected = coefficient * (logits[prompt].softmax(-1).detach() - uniform) / 3  # mean of three prompts
        torch.testing.assert_close(logits[prompt].grad, expected, rtol=0, atol=1e-14)


def test_length_of_an_elite_does_not_weigh():
    logprobs = torch.tensor([[-1.0, -3.0, -7.0], [-2.0, -9.0, -9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert replay_nll_B(logprobs, mask).tolist() == [2.0, 2.0]


def test_weights_sum_to_one_and_are_uniform_over_prompts():
    weights = elite_weights(["a", "b", "a", "a"])
    assert weights == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    assert elite_weights([]) == []


def test_an_elite_without_tokens_is_refused():
    empty = torch.tensor([[1, 0], [0, 0]])
    with pytest.raises(GuardError, match="no token to replay"):
        replay_nll_B(torch.zeros(2, 2), empty)
    with pytest.raises(GuardError, match="no token to replay"):
        floor_weights_B(torch.zeros(2, 2), empty, 0.5, 2.0)


@pytest.mark.parametrize("hole", [float("nan"), float("inf"), float("-inf")])
def test_masked_positions_are_exactly_zero_whatever_they_hold(hole):
    mask = torch.tensor([[1, 0, 1], [0, 1, 1]]).bool()
    plain = -torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.1
    base = plain.flip(0)

    def results(value):
        logprobs = plain.masked_fill(~mask, value).requires_grad_()
        other = base.masked_fill(~mask, value)
        js = jensen_shannon_BT(logprobs, other, mask)
        assert torch.equal(js[~mask], torch.zeros_like(js[~mask]))
        weights, capped = floor_weights_B(logprobs, mask, 0.9, 1.2)
        nll = replay_nll_B(logprobs, mask)
        found = [js, nll, weights, torch.tensor(capped)]
        for term in (js, nll):
            (gradient,) = torch.autograd.grad(term.sum(), logprobs, retain_graph=True)
            assert torch.equal(gradient[~mask], torch.zeros_like(gradient[~mask]))
            found.append(gradient)
        return found

    for filled, holed in zip(results(-1.0), results(hole), strict=True):
        assert torch.equal(filled, holed)
        assert holed.isfinite().all()


def laws(seed, vocabulary=6):
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(vocabulary, dtype=torch.float64, generator=generator).requires_grad_()
    base = torch.randn(vocabulary, dtype=torch.float64, generator=generator)
    return own, base


def js_per_token(own, base):
    """The term of every token of the vocabulary, each as one row."""
    ones = torch.ones(len(own), 1)
    return jensen_shannon_BT(own.log_softmax(-1)[:, None], base.log_softmax(-1)[:, None], ones)[:, 0]


@seeds
@brief
def test_js_under_the_base_is_twice_the_jensen_shannon_divergence(seed):
    """Value and gradient: KL(policy || m) + KL(base || m)."""
    own, base = laws(seed)
    found = (base.softmax(-1) * js_per_token(own, base)).sum()
    middle = Categorical(probs=(own.softmax(-1) + base.softmax(-1)) / 2)
    expected = kl_divergence(Categorical(logits=own), middle) + kl_divergence(
        Categorical(logits=base), middle
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(found, own), torch.autograd.grad(expected, own), rtol=0, atol=1e-12
    )


@seeds
@brief
def test_js_over_sequences_of_the_base_is_that_of_each_prefix(seed):
    """Every position of every sequence: sum_h base(h) x twice the divergence after h."""
    own, base = Tabular.random(3, 3, seed), Tabular.random(3, 3, seed + 1)
    js_S = jensen_shannon_BT(own.logprobs_ST(), base.logprobs_ST(), own.mask_ST).sum(1)
    expected = 0
    for t in range(3):
        reached_H = base.probability_S().view(3**t, -1).sum(1)
        p, q = own.table[t].softmax(-1), base.table[t].detach().softmax(-1)
        middle = Categorical(probs=(p + q) / 2)
        both_H = kl_divergence(Categorical(probs=p), middle) + kl_divergence(Categorical(probs=q), middle)
        expected = expected + (reached_H * both_H).sum()
    found = own.expected_gradient(js_S, base)
    for ours, other in zip(found, own.gradient(expected), strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=1e-10)


@seeds
@brief
def test_js_is_the_generator_at_every_token(seed):
    own, base = laws(seed)
    u = (own.softmax(-1) / base.softmax(-1)).detach()
    generator_V = u * u.log() - (u + 1) * ((u + 1) / 2).log()
    torch.testing.assert_close(js_per_token(own, base).detach(), generator_V, rtol=0, atol=1e-12)
    logprobs = own.log_softmax(-1).detach()[:, None].requires_grad_()
    base_logprobs = base.log_softmax(-1)[:, None].requires_grad_()
    loss = jensen_shannon_BT(logprobs, base_logprobs, torch.ones(6, 1)).sum()
    slopes, none = torch.autograd.grad(loss, [logprobs, base_logprobs], allow_unused=True)
    torch.testing.assert_close(slopes[:, 0], u * (2 * u / (1 + u)).log(), rtol=0, atol=1e-12)
    assert none is None


def test_js_does_not_call_back_a_lost_token_and_the_forward_kl_does():
    base = torch.full((4, 1), 0.25).double().log()
    probability = torch.tensor([1e-2, 1e-6, 1e-12, 1e-40], dtype=torch.float64)
    logprobs = probability.log()[:, None].requires_grad_()
    js = jensen_shannon_BT(logprobs, base, torch.ones(4, 1))
    (slopes,) = torch.autograd.grad(js.sum(), logprobs)
    assert (slopes[:, 0].abs().diff() < 0).all()
    assert slopes[1:].abs().max() < 1e-4
    torch.testing.assert_close(js[-1], torch.tensor([math.log(2)]).double())
    (slopes,) = torch.autograd.grad(replay_nll_B(logprobs, torch.ones(4, 1)).sum(), logprobs)
    assert torch.equal(slopes, -torch.ones_like(slopes))


def test_js_is_zero_with_zero_gradient_where_policy_and_base_agree():
    logprobs = torch.tensor([[-0.5, -3.0]], dtype=torch.float64, requires_grad=True)
    js = jensen_shannon_BT(logprobs, logprobs.detach(), torch.ones(1, 2))
    torch.testing.assert_close(js, torch.zeros_like(js), rtol=0, atol=1e-15)
    torch.testing.assert_close(
        torch.autograd.grad(js.sum(), logprobs)[0], torch.zeros(1, 2).double(), rtol=0, atol=1e-15
    )


def test_js_survives_ratios_beyond_double_range_downwards():
    logprobs = torch.tensor([[-2000.0]], requires_grad=True)
    js = jensen_shannon_BT(logprobs, torch.tensor([[-1.0]]), torch.ones(1, 1))
    assert js.item() == pytest.approx(math.log(2))
    assert torch.autograd.grad(js.sum(), logprobs)[0].item() == 0


def test_floor_weights_by_hand():
    """Geometric means .8, .4, .05 and .5 of the tokens, floor .5, cap 4."""
    probability = torch.tensor([[0.8, 0.8, 0.8], [0.8, 0.2, 0.0], [0.05, 0.05, 0.05], [0.5, 0.5, 0.5]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0]])
    logprobs = probability.double().log().requires_grad_()
    weights, capped = floor_weights_B(logprobs, mask, floor=0.5, max_weight=4.0)
    assert weights.tolist() == pytest.approx([0.0, 0.5 / 0.4, 4.0, 0.0])
    assert capped == 1
    assert not weights.requires_grad


def test_a_cap_that_is_not_reached_counts_nothing_and_an_impossible_elite_is_capped():
    mask = torch.ones(2, 1)
    logprobs = torch.tensor([[0.1], [0.2]]).log()
    assert floor_weights_B(logprobs, mask, 0.4, 5.0)[1] == 0
    weights, capped = floor_weights_B(torch.tensor([[-1e6], [float("-inf")]]), mask, 0.4, 5.0)
    assert weights.tolist() == [5.0, 5.0]
    assert capped == 2


def test_narrow_prompts_show_fewer_strategies_than_their_archive():
    archived = {"a": {"s", "t"}, "b": {"s", "t"}, "c": {"s"}, "d": {"s", "t"}, "unseen": {"s"}}
    found = {
        "a": {"s"},  # one of two
        "b": {"u", "v"},  # as many, though others
        "c": set(),  # none
        "d": {"s", "t", "u"},  # more
        "without archive": set(),
    }
    assert narrow_prompts(found, archived) == {"a", "c"}
