"""Expected gradients of score centering, over all sequences: oracles 3.1 to 3.4 and 3.6 of methods.md."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.centered import (
    DRIFTING,
    EXACT,
    centred,
    drift,
    gradient,
    loss_S,
    marginal_covariance,
    mean_reward,
    policies,
    rewards_S,
    token_covariance,
    weight,
)
from benchmarks.proof.tabular import Tabular, flat
from stages.estimators.centering import centred_logprobs, full_correction_N
from stages.estimators.distribution import FromLogits
from stages.estimators.params import Clip, Mask, Truncate, Uncorrected

every_regulariser = pytest.mark.parametrize("regulariser", [EXACT, *DRIFTING], ids=str)
every_drifting = pytest.mark.parametrize("regulariser", DRIFTING, ids=str)
seeds = given(seed=st.integers(0, 10**6))
brief = settings(deadline=None, max_examples=6)  # of each regulariser


def assert_blocks(found, expected, atol=1e-10):
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=atol)


def zeros(trainer):
    return [torch.zeros_like(table) for table in trainer.table]


@every_regulariser
@seeds
@brief
def test_the_expected_gradient_is_the_token_covariance(regulariser, seed):
    """(B3): with centering C_tok, for any baseline; with a baseline alone C_mrg."""
    trainer, sampler = policies(seed)
    reward_S = rewards_S(seed, trainer)
    expected = [-block for block in token_covariance(trainer, sampler, reward_S, regulariser)]
    for baseline in [0.0, mean_reward(sampler, reward_S), 7.0]:
        assert_blocks(gradient(trainer, sampler, reward_S - baseline, regulariser), expected)
    uncentred = gradient(trainer, sampler, reward_S - mean_reward(sampler, reward_S), regulariser, False)
    assert_blocks(
        uncentred, [-block for block in marginal_covariance(trainer, sampler, reward_S, regulariser)]
    )


@every_regulariser
@seeds
@brief
def test_law_of_total_covariance(regulariser, seed):
    """C_mrg - C_tok = sum_t Cov_h(E_q[R | h], m_t(h)), and it is zero at position 1."""
    trainer, sampler = policies(seed)
    reward_S = rewards_S(seed, trainer)
    baselined_S = reward_S - mean_reward(sampler, reward_S)
    without = gradient(trainer, sampler, baselined_S, regulariser, centring=False)
    centring = gradient(trainer, sampler, baselined_S, regulariser)
    expected = []
    for t, drift_HV in enumerate(drift(trainer, sampler, regulariser)):
        shape = (trainer.vocabulary**t, -1)
        reached_H = sampler.probability_S().view(shape).sum(1)
        value_H = (sampler.probability_S() * reward_S).view(shape).sum(1) / reached_H
        expected.append((reached_H * (value_H - (reached_H * value_H).sum()))[:, None] * drift_HV)
    assert_blocks([b - a for a, b in zip(without, centring, strict=True)], expected)
    torch.testing.assert_close(without[0], centring[0], rtol=0, atol=1e-12)


@every_regulariser
@seeds
@brief
def test_the_correction_has_the_gradient_m_at_every_prefix(regulariser, seed):
    """(B1), (B2); and it is a function of the prefix, not of the token that was sampled there."""
    trainer, sampler = policies(seed)
    corrections_ST = centred(trainer, sampler, regulariser).corrections_BT
    expected = drift(trainer, sampler, regulariser)
    for t in range(trainer.length):
        by_prefix = corrections_ST[:, t].view(trainer.vocabulary**t, -1)
        torch.testing.assert_close(by_prefix, by_prefix[:, :1].expand_as(by_prefix), rtol=0, atol=1e-12)
        found = trainer.gradient(by_prefix[:, 0].sum())
        torch.testing.assert_close(found[t], expected[t], rtol=0, atol=1e-10)
    assert (flat(expected).abs().max() > 1e-3) == (regulariser != EXACT)


@pytest.mark.oracle("3.4")
@every_regulariser
@seeds
@brief
def test_the_drift_is_half_the_length_of_m_and_zero_without_one(regulariser, seed):
    """At every prefix; zero for the exact ratio and, whatever the regulariser, on policy."""
    trainer, sampler = policies(seed)
    terms = centred(trainer, sampler, regulariser)
    assert not terms.drift_BT.requires_grad
    for t, drift_HV in enumerate(drift(trainer, sampler, regulariser)):
        expected_S = drift_HV.abs().sum(1)[trainer.prefix_ST[:, t]] / 2
        torch.testing.assert_close(terms.drift_BT[:, t], expected_S, rtol=0, atol=1e-12)
    assert (terms.drift_BT.max() > 1e-3) == (regulariser != EXACT)
    if regulariser == EXACT:
        assert terms.drift_BT.max() < 1e-14
    on_policy = centred(trainer, trainer.near(seed, 0.0), regulariser)
    assert on_policy.drift_BT.max() < 1e-14


@pytest.mark.oracle("3.4")
@seeds
@brief
def test_the_exact_ratio_drifts_where_the_sampler_never_goes(seed):
    """Outside the sampler's support p is not weighted: m = -sum over it of p_v grad log p_v."""
    trainer, sampler = policies(seed, 6, 1)
    kept_V = sampler.table[0][0].detach()
    kept_V = kept_V.masked_fill(kept_V < kept_V.median(), float("-inf"))
    law = FromLogits(kept_V.expand(6, 1, -1))
    terms = centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, trainer.mask_ST, law, EXACT)
    p_V = trainer.table[0][0].detach().softmax(-1)
    lost = p_V[kept_V == float("-inf")].sum()
    # the coefficients are p_v lost inside the support and -p_v (1 - lost) outside: each sums to this
    expected_BT = (lost * (1 - lost)).expand_as(terms.drift_BT)
    torch.testing.assert_close(terms.drift_BT, expected_BT, rtol=0, atol=1e-12)


@pytest.mark.parametrize("high", [1.0, 1.5, 2.0])
@seeds
@brief
def test_truncation_drifts_by_the_truncated_tokens_only(high, seed):
    """(B2): m = -sum_v (p_v - C q_v)_+ grad log p_v."""
    trainer, sampler = policies(seed, 5, 1)
    p_V, q_V = trainer.table[0][0].softmax(-1), sampler.table[0][0].softmax(-1).detach()
    excess_V = (p_V - high * q_V).clamp(min=0).detach()
    expected = trainer.gradient(-(excess_V * p_V.log()).sum())
    correction_N, _ = full_correction_N(p_V.log()[None], q_V.log()[None], Truncate(high=high))
    assert_blocks(trainer.gradient(correction_N.sum()), expected)


@pytest.mark.oracle("3.1")
@every_regulariser
@seeds
@brief
def test_constant_reward_has_no_expected_gradient(regulariser, seed):
    trainer, sampler = policies(seed)
    constant_S = torch.full_like(rewards_S(seed, trainer), 3.0)
    assert_blocks(gradient(trainer, sampler, constant_S, regulariser), zeros(trainer), atol=1e-12)


@pytest.mark.oracle("3.1")
@every_regulariser
@seeds
@brief
def test_constant_reward_has_no_expected_gradient_on_the_support_of_a_filtered_sampler(regulariser, seed):
    """Top-p: outside its support the sampler has probability 0, and nothing there may be centred."""
    trainer, sampler = policies(seed, 6, 1)
    kept = sampler.table[0].detach()
    kept = kept.masked_fill(kept < kept.median(), float("-inf"))
    p_V, q_V = trainer.table[0][0].log_softmax(-1), kept[0].softmax(-1)
    law = FromLogits(kept.expand(6, -1)[:, None])
    terms = centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, trainer.mask_ST, law, regulariser)
    weight_V = torch.where(q_V > 0, weight((p_V.exp() / q_V).detach(), regulariser), 0.0)
    loss_V = weight_V * terms.logprobs_BT[:, 0] - terms.corrections_BT[:, 0]
    assert_blocks(trainer.gradient((q_V * loss_V).sum()), zeros(trainer), atol=1e-12)


@pytest.mark.oracle("3.2")
@every_drifting
@seeds
@brief
def test_adding_a_hundred_moves_raw_rewards_only(regulariser, seed):
    """In expectation; and the group mean does not move at a single sample."""
    trainer, sampler = policies(seed)
    reward_S = rewards_S(seed, trainer)
    baseline = mean_reward(sampler, reward_S)

    def moved(centring, baselined):
        """Largest change of the expected gradient, as reward and baseline rise by 100."""
        before = gradient(trainer, sampler, reward_S - baselined * baseline, regulariser, centring)
        raised_S = reward_S + 100 - baselined * (baseline + 100)
        after = gradient(trainer, sampler, raised_S, regulariser, centring)
        return (flat(after) - flat(before)).abs().max()

    assert moved(centring=False, baselined=0) > 1e-3
    assert moved(centring=False, baselined=1) < 1e-10
    assert moved(centring=True, baselined=0) < 1e-10
    assert moved(centring=True, baselined=1) < 1e-10

    group = torch.randint(64, (8,), generator=torch.Generator().manual_seed(seed))

    def of_group(rewards_G, centring):
        advantages_S = torch.zeros(64, dtype=torch.float64).index_add(0, group, rewards_G - rewards_G.mean())
        return flat(trainer.gradient(loss_S(trainer, sampler, advantages_S, regulariser, centring).sum()))

    whole_G = reward_S[group].mul(1024).round() / 1024  # so that adding 100 does not round
    for centring in [False, True]:
        torch.testing.assert_close(
            of_group(whole_G, centring), of_group(whole_G + 100, centring), rtol=0, atol=1e-11
        )


@pytest.mark.oracle("3.3")
@every_drifting
@seeds
@brief
def test_a_prefix_shift_leaves_later_positions_unmoved_with_centering_and_moves_them_without(
    regulariser, seed
):
    """A reward that depends on token 1 only tells nothing about the others."""
    trainer, sampler = policies(seed)
    reward_S = rewards_S(seed, trainer)
    shifted_S = reward_S + trainer.tokens_ST[:, 0]

    def moved(centring):
        found = [
            gradient(trainer, sampler, given_S - mean_reward(sampler, given_S), regulariser, centring)
            for given_S in (reward_S, shifted_S)
        ]
        return [(after - before).abs().max() for before, after in zip(*found, strict=True)]

    first, *later = moved(centring=True)
    assert first > 1e-6 or isinstance(regulariser, Mask)  # which may mask every first token
    assert max(later) < 1e-10
    _, *later = moved(centring=False)
    assert max(later) > 1e-6


@pytest.mark.oracle("3.3")
@seeds
@brief
def test_a_prefix_shift_leaves_later_positions_unmoved_under_the_exact_ratio(seed):
    trainer, sampler = policies(seed)
    shift_S = rewards_S(seed, trainer)[:4][trainer.tokens_ST[:, 0]]
    for centring in [False, True]:
        _, *later = gradient(trainer, sampler, shift_S, EXACT, centring)
        assert flat(later).abs().max() < 1e-10


@pytest.mark.oracle("3.4")
@every_regulariser
@seeds
@brief
def test_on_policy_centering_is_reinforce(regulariser, seed):
    """At every sample, not only in expectation: m is zero and the weights are one."""
    trainer = Tabular.random(4, 3, seed)
    sampler = trainer.near(seed, 0.0)
    for block in drift(trainer, sampler, regulariser):
        assert block.abs().max() < 1e-12
    reward_S = rewards_S(seed, trainer)
    for sequence in range(0, 64, 7):
        found = trainer.gradient(loss_S(trainer, sampler, reward_S, regulariser)[sequence])
        reinforce = trainer.gradient(-(reward_S[:, None] * trainer.logprobs_ST()).sum(1)[sequence])
        assert_blocks(found, reinforce, atol=1e-12)
    assert_blocks(gradient(trainer, sampler, reward_S, regulariser), trainer.true_gradient(reward_S))


@pytest.mark.oracle("3.6")
@pytest.mark.parametrize("regulariser", [EXACT, Uncorrected(), Clip(low=0.8, high=1.2)], ids=str)
@pytest.mark.parametrize("samples", [2, 3])
def test_a_group_mean_on_top_scales_by_one_minus_one_over_the_samples(regulariser, samples):
    """(B6), over all groups; the leave-one-out mean has factor 1."""
    trainer, sampler = policies(11, 2, 2)
    reward_S, q_S = rewards_S(11, trainer), sampler.probability_S()
    ones_S = torch.ones_like(reward_S)
    per_sample = loss_S(trainer, sampler, ones_S, regulariser)
    score_SD = torch.stack([flat(trainer.gradient(loss)) for loss in per_sample])
    found = {"mean": 0, "others": 0}
    for group in product(range(4), repeat=samples):
        chosen = torch.tensor(group)
        reward_G, chance = reward_S[chosen], q_S[chosen].prod()
        others_G = (reward_G.sum() - reward_G) / (samples - 1)
        for name, baseline in [("mean", reward_G.mean()), ("others", others_G)]:
            found[name] += chance * ((reward_G - baseline)[:, None] * score_SD[chosen]).mean(0)
    covariance = -flat(token_covariance(trainer, sampler, reward_S, regulariser))
    torch.testing.assert_close(found["mean"], (1 - 1 / samples) * covariance, rtol=0, atol=1e-10)
    torch.testing.assert_close(found["others"], covariance, rtol=0, atol=1e-10)
