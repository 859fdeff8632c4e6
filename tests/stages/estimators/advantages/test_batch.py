"""Batch-normalised advantages against the standard library and exact expectations over all batches."""

from itertools import product
from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from benchmarks.proof.groups import EveryGroup
from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.advantages import reinforce_plus_plus, reinforce_plus_plus_baseline

UNSCORABLE = float("nan")
BOTH = [reinforce_plus_plus, reinforce_plus_plus_baseline]
rewards_of_batches = st.lists(
    st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=3, max_size=3), min_size=1, max_size=4
)


def as_tensors(rewards_PG):
    rewards = tensor(
        [[UNSCORABLE if r is None else float(r) for r in row] for row in rewards_PG], dtype=torch.float64
    )
    return rewards, ~rewards.isnan()


def scored(row):
    return [r for r in row if r is not None]


@settings(deadline=None)
@given(rewards_of_batches)
def test_reward_minus_batch_mean_over_batch_std(rewards_PG):
    found = reinforce_plus_plus(*as_tensors(rewards_PG))
    everyone = [r for row in rewards_PG for r in scored(row)]
    varied = len(set(everyone)) > 1
    assert found.informative_P.tolist() == [varied and bool(scored(row)) for row in rewards_PG]
    for row, values_G in zip(rewards_PG, found.values_PG.tolist(), strict=True):
        for reward, value in zip(row, values_G, strict=True):
            if reward is None or not varied:
                assert value == 0.0
            else:
                assert value == pytest.approx((reward - fmean(everyone)) / pstdev(everyone), abs=1e-12)


@settings(deadline=None)
@given(rewards_of_batches)
def test_reward_minus_group_mean_over_batch_std(rewards_PG):
    found = reinforce_plus_plus_baseline(*as_tensors(rewards_PG))
    differences = [r - fmean(scored(row)) for row in rewards_PG for r in scored(row)]
    assert found.informative_P.tolist() == [len(set(scored(row))) > 1 for row in rewards_PG]
    for row, values_G in zip(rewards_PG, found.values_PG.tolist(), strict=True):
        for reward, value in zip(row, values_G, strict=True):
            if reward is None or len(set(scored(row))) < 2:
                assert value == 0.0
            else:
                expected = (reward - fmean(scored(row))) / pstdev(differences, mu=0.0)
                assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("rewards", [[[0.1, 0.1], [0.1, None]], [[None, None], [None, None]]])
def test_a_batch_without_variance_has_exact_zeros(estimator, rewards):
    found = estimator(*as_tensors(rewards))
    assert not found.informative_P.any()
    assert torch.equal(found.values_PG, torch.zeros(2, 2, dtype=torch.float64))


@pytest.mark.parametrize("estimator", BOTH)
def test_values_have_mean_zero_and_deviation_one_and_no_origin_or_scale(estimator):
    rewards, scorable = as_tensors([[1, 0, None], [2, 5, 5], [3, 3, 3]])
    found = estimator(rewards, scorable).values_PG
    assert float(found[scorable].mean()) == pytest.approx(0, abs=1e-12)
    assert float(found[scorable].square().mean()) == pytest.approx(1)
    torch.testing.assert_close(estimator(7 * rewards + 100, scorable).values_PG, found, rtol=0, atol=1e-12)
    tiny = estimator(1e-30 * rewards.float(), scorable).values_PG
    torch.testing.assert_close(tiny.double(), found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2])
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_expected_gradient_of_the_difference_over_two_prompts(size, seed):
    """(1 - 1/N) x the true one's mean over prompts, N samples in the batch; over the std it is no multiple.

    Prompts are two policies with rewards of their own; every batch of both is enumerated.
    """
    drawn = torch.Generator().manual_seed(seed)
    policies = [Tabular.random(3, 1, seed + prompt) for prompt in range(2)]
    reward_PS = [
        torch.randn(3, dtype=torch.float64, generator=drawn),
        torch.tensor([1.0, 1.0, 4.0]).double(),
    ]
    groups = [EveryGroup(policy, size) for policy in policies]
    difference, normalised = torch.zeros(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    for first, second in product(range(len(groups[0].places_PG)), range(len(groups[1].places_PG))):
        chosen = (first, second)
        rewards_PG = torch.stack(
            [g.rewards_PG(r)[c] for g, r, c in zip(groups, reward_PS, chosen, strict=True)]
        )
        chance = groups[0].probability_P[first] * groups[1].probability_P[second]
        values_PG = reinforce_plus_plus(rewards_PG, torch.ones_like(rewards_PG, dtype=torch.bool)).values_PG
        for prompt in range(2):
            logprob_G = policies[prompt].logprobs_ST().sum(1)[groups[prompt].places_PG[chosen[prompt]]]
            score_G3 = torch.stack([flat(policies[prompt].gradient(one)) for one in logprob_G])
            block = slice(3 * prompt, 3 * prompt + 3)
            normalised[block] += chance * values_PG[prompt] @ score_G3 / (2 * size)
            difference[block] += (
                chance * values_PG[prompt] @ score_G3 * rewards_PG.std(correction=0) / (2 * size)
            )
    true = -torch.cat([flat(p.true_gradient(r)) for p, r in zip(policies, reward_PS, strict=True)]) / 2
    torch.testing.assert_close(difference, (1 - 1 / (2 * size)) * true, rtol=0, atol=1e-10)
    assert torch.nn.functional.cosine_similarity(normalised, true, dim=0) < 1 - 1e-9


def test_groups_of_one_are_fine_without_a_group_baseline():
    one = tensor([[1.0], [0.0]])
    assert reinforce_plus_plus(one, one >= 0).values_PG.tolist() == [[1.0], [-1.0]]
    with pytest.raises(GuardError, match="group of one"):
        reinforce_plus_plus_baseline(one, one >= 0)


@pytest.mark.parametrize("estimator", BOTH)
def test_refusals(estimator):
    with pytest.raises(GuardError, match="one shape"):
        estimator(torch.ones(2, 3), torch.ones(3, 2).bool())
    with pytest.raises(GuardError, match="not finite"):
        estimator(tensor([[1.0, float("inf")]]), torch.ones(1, 2).bool())
