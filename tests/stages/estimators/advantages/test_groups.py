"""Group advantages against the standard library's statistics and exact expectations over all groups."""

from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from benchmarks.proof.groups import EveryGroup
from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.advantages import Advantages, dr_grpo, grpo, rloo

UNSCORABLE = float("nan")
ESTIMATORS = [grpo, dr_grpo, rloo]
seeds = st.integers(0, 10**6)
exact = settings(deadline=None, max_examples=15)
maybe_unscorable = st.one_of(st.none(), st.floats(-10, 10, width=32))


def as_tensors(rewards_PG):
    rewards = tensor(
        [[UNSCORABLE if r is None else r for r in row] for row in rewards_PG], dtype=torch.float64
    )
    return rewards, ~rewards.isnan()


def of_formula(rewards_G):
    """The three of a group by the textbook, over its scorable members."""
    scored = [r for r in rewards_G if r is not None]
    if len(set(scored)) < 2:
        return [(0.0, 0.0, 0.0)] * len(rewards_G)
    return [
        (0.0, 0.0, 0.0)
        if r is None
        else (
            (r - fmean(scored)) / pstdev(scored),
            r - fmean(scored),
            r - (sum(scored) - r) / (len(scored) - 1),
        )
        for r in rewards_G
    ]


@settings(deadline=None)
@given(st.lists(st.lists(maybe_unscorable, min_size=4, max_size=4), min_size=1, max_size=4))
def test_unscorable_samples_leave_mean_std_and_denominator(rewards_PG):
    for place, estimator in enumerate(ESTIMATORS):
        found = estimator(*as_tensors(rewards_PG))
        for row, values_G, informative in zip(
            rewards_PG, found.values_PG.tolist(), found.informative_P.tolist(), strict=True
        ):
            assert informative == (len({r for r in row if r is not None}) > 1)
            for reward, value, expected in zip(row, values_G, of_formula(row), strict=True):
                if reward is None or not informative:
                    assert value == 0.0
                else:
                    assert value == pytest.approx(expected[place], rel=1e-9, abs=1e-12)


def test_an_unscorable_sample_is_not_a_reward_of_zero():
    for estimator in ESTIMATORS:
        with_gap = estimator(*as_tensors([[1.0, 0.5, 0.0, None]])).values_PG[0, :3]
        without = estimator(*as_tensors([[1.0, 0.5, 0.0]])).values_PG[0]
        as_zero = estimator(*as_tensors([[1.0, 0.5, 0.0, 0.0]])).values_PG[0, :3]
        assert torch.equal(with_gap, without)
        assert not torch.allclose(with_gap, as_zero)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "rewards", [[0.1, 0.1, 0.1], [None, None, None], [None, 1.0, None], [1e8, 1e8, None]]
)
def test_a_group_without_variance_has_exact_zeros(estimator, rewards):
    advantages = estimator(*as_tensors([rewards]))
    assert not advantages.informative_P.any()
    assert torch.equal(advantages.values_PG, torch.zeros(1, 3, dtype=torch.float64))


def test_groups_are_kept_or_dropped_whole():
    """A row that stands at its group's leave-one-out mean is no reason to drop it (NeMo-RL 3469)."""
    advantages = grpo(*as_tensors([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0.5, 0.5]]))
    assert isinstance(advantages, Advantages)
    assert advantages.informative_P.tolist() == [True, False, False, True]
    kept_PG = advantages.values_PG[advantages.informative_P]
    assert kept_PG.sum(1).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert kept_PG.square().mean(1).tolist() == pytest.approx([1, 1])
    at_baseline = rloo(*as_tensors([[0, 1, 0.5]]))
    assert at_baseline.values_PG[0, 2] == 0 and at_baseline.informative_P.all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_group_does_not_see_the_others(estimator):
    rewards, scorable = as_tensors([[1, 0, 0.5], [None, 3, 9], [2, 2, 2]])
    together = estimator(rewards, scorable)
    for p in range(3):
        alone = estimator(rewards[p : p + 1], scorable[p : p + 1])
        assert torch.equal(alone.values_PG[0], together.values_PG[p])


def test_relative_is_invariant_to_origin_and_scale():
    rewards, scorable = as_tensors([[1, 0, 0.5, None], [0, 0, 1, 1]])
    moved = grpo(7 * rewards + 100, scorable).values_PG
    torch.testing.assert_close(moved, grpo(rewards, scorable).values_PG, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_relative_survives_differences_whose_squares_do_not(size):
    found = grpo(tensor([[size, 0.0, 0.0, 0.0]]), torch.ones(1, 4, dtype=torch.bool)).values_PG
    torch.testing.assert_close(found, tensor([[3**0.5, *[-(3**-0.5)] * 3]]))


@pytest.mark.oracle("3.2")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_adding_a_constant_moves_no_sample(estimator):
    rewards, scorable = as_tensors([[1, 0, 0.5, None], [0, 0, 1, 1], [3, 3, 3, 3]])
    torch.testing.assert_close(
        estimator(rewards + 100, scorable).values_PG,
        estimator(rewards, scorable).values_PG,
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.oracle("3.6")
@pytest.mark.parametrize("vocabulary, length, size", [(3, 1, 2), (3, 1, 3), (2, 2, 3), (3, 2, 2)])
@exact
@given(seed=seeds)
def test_expected_gradient_of_group_mean_and_leave_one_out(vocabulary, length, size, seed):
    """methods.md 3(b) B6: (1 - 1/G) x the true gradient with the own reward in the mean, 1 x without."""
    policy = Tabular.random(vocabulary, length, seed)
    reward_S = torch.randn(
        vocabulary**length, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    true = flat(policy.true_gradient(reward_S))
    groups = EveryGroup(policy, size)
    for estimator, factor in ((dr_grpo, 1 - 1 / size), (rloo, 1.0)):
        values_PG = estimator(groups.rewards_PG(reward_S), groups.all_PG).values_PG
        found = groups.expected_gradient(values_PG)
        torch.testing.assert_close(found, factor * true, rtol=0, atol=1e-10)


@exact
@given(seed=seeds, missing=st.integers(0, 3))
def test_leave_one_out_is_unbiased_over_the_samples_that_have_a_verdict(seed, missing):
    """Sample `missing` of every group is unscorable for a reason that is not its content."""
    policy = Tabular.random(2, 2, seed)
    reward_S = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    groups = EveryGroup(policy, 4)
    scorable_PG = groups.all_PG.clone()
    scorable_PG[:, missing] = False
    values_PG = rloo(groups.rewards_PG(reward_S), scorable_PG).values_PG
    torch.testing.assert_close(
        groups.expected_gradient(values_PG) * 4 / 3,
        flat(policy.true_gradient(reward_S)),
        rtol=0,
        atol=1e-10,
    )


@pytest.mark.parametrize("size", [2, 4])
@exact
@given(seed=seeds)
def test_grpo_weights_a_prompt_by_its_expected_deviation(size, seed):
    """With binary rewards the expected gradient is E[sqrt(n (G - n))] / (G p (1 - p)) x grad p."""
    policy = Tabular.random(2, 2, seed)
    right_S = tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    groups = EveryGroup(policy, size)
    p = float(policy.probability_S() @ right_S)
    right_P = groups.rewards_PG(right_S).sum(1)
    deviation = float(groups.probability_P @ (right_P * (size - right_P)).sqrt())
    found = groups.expected_gradient(grpo(groups.rewards_PG(right_S), groups.all_PG).values_PG)
    expected = deviation / (size * p * (1 - p)) * flat(policy.true_gradient(right_S))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@exact
@given(seed=seeds)
def test_sampling_on_until_a_group_is_informative_divides_by_the_chance_that_it_is(seed):
    """DAPO's dynamic sampling (arXiv 2503.14476) by whole groups: a prompt's gradient, reweighted."""
    policy = Tabular.random(2, 2, seed)
    reward_S = tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    groups = EveryGroup(policy, 3)
    advantages = rloo(groups.rewards_PG(reward_S), groups.all_PG)
    chance = groups.probability_P[advantages.informative_P].sum()
    groups.probability_P = groups.probability_P.where(advantages.informative_P, 0.0) / chance
    torch.testing.assert_close(
        groups.expected_gradient(advantages.values_PG),
        flat(policy.true_gradient(reward_S)) / chance,
        rtol=0,
        atol=1e-10,
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_refusals(estimator):
    one = torch.ones(2, 1)
    with pytest.raises(GuardError, match="group of one"):
        estimator(one, one.bool())
    with pytest.raises(GuardError, match="one shape"):
        estimator(torch.ones(2, 3), torch.ones(3, 2).bool())
    with pytest.raises(GuardError, match="not finite"):
        estimator(tensor([[1.0, float("nan")]]), torch.ones(1, 2).bool())
    with pytest.raises(GuardError, match="floating point"):
        estimator(torch.ones(1, 2).long(), torch.ones(1, 2).bool())
    with pytest.raises(GuardError, match="detach"):
        estimator(torch.ones(1, 2).requires_grad_(), torch.ones(1, 2).bool())
