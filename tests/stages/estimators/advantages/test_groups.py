"""Group advantages against the standard library's statistics and exact expectations over all groups."""

from itertools import product
from statistics import fmean, pstdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from stages.errors import GuardError
from stages.estimators.advantages import group_mean, group_relative

UNSCORABLE = float("nan")
groups = st.lists(st.one_of(st.none(), st.floats(-10, 10, width=32)), min_size=2, max_size=8)


def as_tensors(rewards_PG):
    rewards = tensor(
        [[UNSCORABLE if r is None else r for r in row] for row in rewards_PG], dtype=torch.float64
    )
    return rewards, ~rewards.isnan()


@settings(deadline=None)
@given(groups)
def test_unscorable_samples_leave_mean_std_and_denominator(rewards_G):
    scored = [r for r in rewards_G if r is not None]
    relative = group_relative(*as_tensors([rewards_G]))
    centred = group_mean(*as_tensors([rewards_G]))
    informative = len(set(scored)) > 1
    assert relative.informative_P.tolist() == centred.informative_P.tolist() == [informative]
    for reward, advantage, difference in zip(
        rewards_G, relative.values_PG[0].tolist(), centred.values_PG[0].tolist(), strict=True
    ):
        if reward is None or not informative:
            assert advantage == difference == 0.0
        else:
            assert difference == pytest.approx(reward - fmean(scored), abs=1e-12)
            assert advantage * pstdev(scored) == pytest.approx(reward - fmean(scored), abs=1e-10)


def test_an_unscorable_sample_is_not_a_reward_of_zero():
    with_gap = group_relative(*as_tensors([[1.0, 0.5, 0.0, None]])).values_PG[0, :3]
    without = group_relative(*as_tensors([[1.0, 0.5, 0.0]])).values_PG[0]
    as_zero = group_relative(*as_tensors([[1.0, 0.5, 0.0, 0.0]])).values_PG[0, :3]
    assert torch.equal(with_gap, without)
    assert not torch.allclose(with_gap, as_zero)


@pytest.mark.parametrize("estimator", [group_relative, group_mean])
@pytest.mark.parametrize(
    "rewards", [[0.1, 0.1, 0.1], [None, None, None], [None, 1.0, None], [1e8, 1e8, None]]
)
def test_a_group_without_variance_has_exact_zeros(estimator, rewards):
    advantages = estimator(*as_tensors([rewards]))
    assert not advantages.informative_P.any()
    assert torch.equal(advantages.values_PG, torch.zeros(1, 3, dtype=torch.float64))


def test_groups_are_kept_or_dropped_whole():
    """A row that stands at its group's leave-one-out mean is no reason to drop it (NeMo-RL 3469)."""
    advantages = group_relative(*as_tensors([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0.5, 0.5]]))
    assert advantages.informative_P.tolist() == [True, False, False, True]
    kept_PG = advantages.values_PG[advantages.informative_P]
    assert kept_PG.sum(1).tolist() == pytest.approx([0, 0], abs=1e-12)
    assert kept_PG.square().mean(1).tolist() == pytest.approx([1, 1])


def test_a_group_does_not_see_the_others():
    rewards, scorable = as_tensors([[1, 0, 0.5], [None, 3, 9], [2, 2, 2]])
    together = group_relative(rewards, scorable)
    for p in range(3):
        alone = group_relative(rewards[p : p + 1], scorable[p : p + 1])
        assert torch.equal(alone.values_PG[0], together.values_PG[p])


def test_relative_is_invariant_to_origin_and_scale():
    rewards, scorable = as_tensors([[1, 0, 0.5, None], [0, 0, 1, 1]])
    moved = group_relative(7 * rewards + 100, scorable).values_PG
    torch.testing.assert_close(moved, group_relative(rewards, scorable).values_PG, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_expected_group_mean_gradient_is_the_covariance_times_one_minus_one_over_g(size):
    """methods.md 3(b) B6, over all groups of a three-armed policy."""
    logits = tensor([0.3, -0.5, 1.1], dtype=torch.float64)
    p = logits.softmax(0)
    reward = tensor([1.0, 0.2, -0.7], dtype=torch.float64)
    score = torch.eye(3, dtype=torch.float64) - p  # row y: grad of log p_y by the logits
    covariance = (p * (reward - p @ reward)) @ score
    expected = torch.zeros(3, dtype=torch.float64)
    for group in product(range(3), repeat=size):
        arms = tensor(group)
        advantages = group_mean(reward[arms][None], torch.ones(1, size, dtype=torch.bool)).values_PG[0]
        expected += p[arms].prod() * (advantages @ score[arms]) / size
    torch.testing.assert_close(expected, (1 - 1 / size) * covariance, rtol=0, atol=1e-15)


def test_refusals():
    one = torch.ones(2, 1)
    with pytest.raises(GuardError, match="group of one"):
        group_relative(one, one.bool())
    with pytest.raises(GuardError, match="one shape"):
        group_relative(torch.ones(2, 3), torch.ones(3, 2).bool())
    with pytest.raises(GuardError, match="not finite"):
        group_mean(tensor([[1.0, float("nan")]]), torch.ones(1, 2).bool())
