"""SIGNBALANCE: the identities of methods.md 4 over every composition, its prompt weight by enumeration."""

from itertools import product
from math import comb

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from benchmarks.proof.groups import EveryGroup
from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.advantages import dr_grpo, grpo, signbalance
from stages.estimators.losses import clipped_surrogate_BT
from stages.estimators.params import AllCorrect, Level, Scope

GROUP, BATCH, ZERO, PAPER = Scope.GROUP, Scope.BATCH, AllCorrect.ZERO, AllCorrect.PAPER
RIGHT_OF_FOUR = tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
verdicts = st.lists(
    st.lists(st.sampled_from([True, False, None]), min_size=5, max_size=5), min_size=1, max_size=4
)


def as_tensors(verdicts_PG, wrong=0.0):
    rewards = tensor(
        [[float("nan") if v is None else 1.0 if v else wrong for v in row] for row in verdicts_PG],
        dtype=torch.float64,
    )
    return rewards, ~rewards.isnan()


def composition(right, size):
    return as_tensors([[True] * right + [False] * (size - right)])


@pytest.mark.oracle("4.1")
@settings(deadline=None)
@given(verdicts, st.sampled_from(Scope), st.sampled_from(AllCorrect), st.sampled_from([0.0, -1.0]))
def test_sign_is_the_verdicts_or_zero_and_unscorable_is_exactly_zero(verdicts_PG, scope, all_correct, wrong):
    found = signbalance(*as_tensors(verdicts_PG, wrong), scope, all_correct).advantages
    for row, values_G in zip(verdicts_PG, found.values_PG.tolist(), strict=True):
        for verdict, value in zip(row, values_G, strict=True):
            assert value >= 0 if verdict else value <= 0
            assert value == 0 or verdict is not None
    assert found.informative_P.tolist() == [any(row) for row in found.values_PG.tolist()]


@pytest.mark.oracle("4.2")
@pytest.mark.oracle("4.3")
@settings(deadline=None)
@given(verdicts)
def test_a_mixed_group_sums_to_zero_and_its_two_sides_weigh_the_same(verdicts_PG):
    found = signbalance(*as_tensors(verdicts_PG), GROUP, ZERO).advantages
    for row, values_G, informative in zip(
        verdicts_PG, found.values_PG, found.informative_P.tolist(), strict=True
    ):
        assert informative == (True in row and False in row)
        assert float(values_G.sum()) == pytest.approx(0, abs=1e-12)
        assert float(values_G.clamp(min=0).sum()) == pytest.approx(float(-values_G.clamp(max=0).sum()))
        assert float(values_G.clamp(min=0).sum()) == (row.count(True) if informative else 0)


@pytest.mark.oracle("4.4")
@pytest.mark.parametrize("right", range(1, 16))
def test_a_right_sample_has_one_for_every_composition(right):
    values_G = signbalance(*composition(right, 16), GROUP, ZERO).advantages.values_PG[0]
    assert values_G[:right].tolist() == [1.0] * right
    assert values_G[right:].tolist() == pytest.approx([-right / (16 - right)] * (16 - right))


@pytest.mark.oracle("4.5")
@pytest.mark.parametrize("wrong", [0.0, -1.0])
@settings(deadline=None)
@given(verdicts_PG=verdicts)
def test_a_mixed_group_is_collinear_with_reward_minus_mean(wrong, verdicts_PG):
    """A = A_GRPO sqrt(n+/n-) = (r - mean) n / ((1 - wrong) n-), n scorable samples."""
    rewards, scorable = as_tensors(verdicts_PG, wrong)
    found = signbalance(rewards, scorable, GROUP, ZERO).advantages.values_PG
    for p, row in enumerate(verdicts_PG):
        right, failed = row.count(True), row.count(False)
        if right and failed:
            of_mean = dr_grpo(rewards, scorable).values_PG[p] * (right + failed) / ((1 - wrong) * failed)
            of_grpo = grpo(rewards, scorable).values_PG[p] * (right / failed) ** 0.5
            torch.testing.assert_close(found[p], of_mean, rtol=0, atol=1e-12)
            torch.testing.assert_close(found[p], of_grpo, rtol=0, atol=1e-12)


@pytest.mark.oracle("4.6")
def test_a_lone_wrong_sample_of_sixteen_has_minus_fifteen():
    found = signbalance(*composition(15, 16), GROUP, ZERO)
    assert found.advantages.values_PG[0].tolist() == [1.0] * 15 + [-15.0]
    assert (found.largest_ratio, found.clamped) == (15.0, 0)
    assert float(grpo(*composition(15, 16)).values_PG[0, -1]) == pytest.approx(-(15**0.5))
    fifteen_wrong = signbalance(*composition(1, 16), GROUP, ZERO).advantages.values_PG[0]
    assert fifteen_wrong.tolist() == pytest.approx([1.0] + [-1 / 15] * 15)


def omega(probability, size, all_correct):
    """sum of p^j over j < G, and without the group that is all right: methods.md 4."""
    return sum(probability**j for j in range(size if all_correct is PAPER else size - 1))


@pytest.mark.oracle("4.7")
@pytest.mark.parametrize("all_correct", AllCorrect)
@pytest.mark.parametrize("size", [2, 3, 16])
@settings(deadline=None, max_examples=20)
@given(probability=st.floats(0.01, 0.99))
def test_omega_by_binomial_enumeration(all_correct, size, probability):
    """The mean score of a right sample is grad p / p, of a wrong one -grad p / (1 - p)."""
    found = 0.0
    for right in range(size + 1):
        chance = comb(size, right) * probability**right * (1 - probability) ** (size - right)
        values_G = signbalance(*composition(right, size), GROUP, all_correct).advantages.values_PG[0]
        positive, negative = float(values_G[:right].sum()), float(values_G[right:].sum())
        found += chance * (positive / probability - negative / (1 - probability)) / size
    assert found == pytest.approx(omega(probability, size, all_correct), abs=1e-10)


@pytest.mark.oracle("4.7")
@pytest.mark.parametrize("all_correct", AllCorrect)
@pytest.mark.parametrize("size", [2, 3, 4])
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_expected_gradient_is_omega_times_the_true_one_over_all_groups(all_correct, size, seed):
    policy = Tabular.random(2, 2, seed)
    groups = EveryGroup(policy, size)
    found = signbalance(groups.rewards_PG(RIGHT_OF_FOUR), groups.all_PG, GROUP, all_correct).advantages
    weight = omega(float(policy.probability_S() @ RIGHT_OF_FOUR), size, all_correct)
    torch.testing.assert_close(
        groups.expected_gradient(found.values_PG),
        weight * flat(policy.true_gradient(RIGHT_OF_FOUR)),
        rtol=0,
        atol=1e-10,
    )


def test_omega_of_the_hard_and_the_easy_prompt():
    """methods.md 4: G = 16 weighs a prompt at p = .98 over thirteen times one at p = .02."""
    assert omega(0.02, 16, PAPER) == pytest.approx((1 - 0.02**16) / 0.98) == pytest.approx(1.02, abs=0.005)
    assert omega(0.98, 16, PAPER) == pytest.approx(13.8, abs=0.05)


@pytest.mark.oracle("4.8")
@settings(deadline=None)
@given(verdicts)
def test_batch_scope_is_a_global_baseline_and_sums_to_zero_over_the_batch(verdicts_PG):
    """(r - b) / (1 - b), b the mean reward of the batch, whether wrong is 0 or -1."""
    everyone = [v for row in verdicts_PG for v in row if v is not None]
    for wrong in (0.0, -1.0):
        rewards, scorable = as_tensors(verdicts_PG, wrong)
        found = signbalance(rewards, scorable, BATCH, ZERO).advantages
        assert float(found.values_PG.sum()) == pytest.approx(0, abs=1e-12)
        if True in everyone and False in everyone:
            mean = rewards[scorable].mean()
            expected = ((rewards - mean) / (1 - mean)).where(scorable, 0.0)
            torch.testing.assert_close(found.values_PG, expected, rtol=0, atol=1e-12)
            assert found.informative_P.tolist() == scorable.any(1).tolist()
        else:
            assert not found.values_PG.any() and not found.informative_P.any()
    group = signbalance(*as_tensors(verdicts_PG), GROUP, ZERO).advantages
    assert float(group.values_PG.sum()) == pytest.approx(
        0, abs=1e-12
    )  # groups sum to zero: so does the batch


@pytest.mark.oracle("4.9")
@pytest.mark.parametrize("constant", [0.5, 3.0])
@pytest.mark.parametrize("level", [Level.TOKEN, Level.GEOMETRIC])
def test_scaling_the_constant_scales_the_clipped_loss_and_its_gradient(constant, level):
    """c multiplies every advantage; PPO's pessimistic minimum keeps a positive factor."""
    values_B1 = signbalance(*composition(3, 4), GROUP, ZERO).advantages.values_PG[0].unsqueeze(1)
    proximal_BT = torch.zeros(4, 2, dtype=torch.float64)
    mask_BT = torch.ones_like(proximal_BT, dtype=torch.bool)

    def loss_and_gradient(advantages_B1):
        logprobs_BT = tensor([[0.5, 0.7], [1.0, 1.1], [1.7, 1.6], [1.7, 0.9]], dtype=torch.float64).log()
        logprobs_BT.requires_grad_()
        loss = clipped_surrogate_BT(logprobs_BT, proximal_BT, advantages_B1, mask_BT, level, 0.2, 0.2).mean()
        return loss.detach(), *torch.autograd.grad(loss, logprobs_BT)

    for scaled, plain in zip(
        loss_and_gradient(constant * values_B1), loss_and_gradient(values_B1), strict=True
    ):
        torch.testing.assert_close(scaled, constant * plain, rtol=0, atol=1e-12)
        assert plain.any()


@pytest.mark.oracle("4.10")
@settings(deadline=None)
@given(verdicts, st.sampled_from(Scope), st.sampled_from(AllCorrect), st.randoms(use_true_random=False))
def test_permuting_groups_and_samples_permutes_the_advantages(verdicts_PG, scope, all_correct, drawn):
    rewards, scorable = as_tensors(verdicts_PG)
    groups, samples = list(range(len(verdicts_PG))), list(range(5))
    drawn.shuffle(groups)
    drawn.shuffle(samples)
    before = signbalance(rewards, scorable, scope, all_correct)
    after = signbalance(rewards[groups][:, samples], scorable[groups][:, samples], scope, all_correct)
    torch.testing.assert_close(
        after.advantages.values_PG, before.advantages.values_PG[groups][:, samples], rtol=0, atol=0
    )
    assert (after.largest_ratio, after.all_correct_groups, after.all_wrong_groups) == (
        before.largest_ratio,
        before.all_correct_groups,
        before.all_wrong_groups,
    )


@pytest.mark.oracle("4.11")
def test_flipping_the_rewards_does_not_negate_the_advantages_as_it_does_with_grpo():
    rewards, scorable = composition(3, 4)
    ours = signbalance(rewards, scorable, GROUP, ZERO).advantages.values_PG
    flipped = signbalance(1 - rewards, scorable, GROUP, ZERO).advantages.values_PG
    assert ours[0].tolist() == [1.0, 1.0, 1.0, -3.0]
    assert flipped[0].tolist() == pytest.approx([-1 / 3] * 3 + [1.0])
    torch.testing.assert_close(
        grpo(1 - rewards, scorable).values_PG, -grpo(rewards, scorable).values_PG, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("scope, all_correct", list(product(Scope, AllCorrect)))
def test_a_group_without_a_wrong_sample(scope, all_correct):
    """Of one group both scopes are about the same counts; an all-wrong one is always zeros."""
    right = signbalance(*as_tensors([[True, True, None]]), scope, all_correct)
    assert right.advantages.values_PG.tolist() == [[1, 1, 0] if all_correct is PAPER else [0, 0, 0]]
    assert right.advantages.informative_P.tolist() == [all_correct is PAPER]
    assert (right.all_correct_groups, right.all_wrong_groups, right.largest_ratio) == (1, 0, 0.0)
    wrong = signbalance(*as_tensors([[False, False, None]]), scope, all_correct)
    assert wrong.advantages.values_PG.tolist() == [[0, 0, 0]]
    assert (wrong.all_correct_groups, wrong.all_wrong_groups, wrong.largest_ratio) == (0, 1, 0.0)


def test_uniform_groups_are_counted_and_in_batch_scope_still_teach():
    batch = as_tensors([[True, True, None], [True, False, False], [False, None, None], [None] * 3])
    group = signbalance(*batch, GROUP, ZERO)
    assert group.advantages.values_PG.tolist() == [[0, 0, 0], [1, -0.5, -0.5], [0, 0, 0], [0, 0, 0]]
    assert (group.all_correct_groups, group.all_wrong_groups) == (1, 1)
    whole = signbalance(*batch, BATCH, ZERO)
    assert whole.advantages.values_PG.tolist() == [[1, 1, 0], [1, -1, -1], [-1, 0, 0], [0, 0, 0]]
    assert whole.advantages.informative_P.tolist() == [True, True, True, False]
    assert (whole.all_correct_groups, whole.all_wrong_groups, whole.largest_ratio) == (1, 1, 1.0)


def test_the_clamp_bounds_the_ratio_and_is_counted():
    batch = as_tensors([[True] * 4 + [False], [True] * 3 + [False] * 2, [True] * 5, [False] * 5])
    group = signbalance(*batch, GROUP, ZERO, rho_max=2.0)
    assert (group.clamped, group.largest_ratio) == (1, 4.0)
    assert group.advantages.values_PG[:2, -1].tolist() == [-2.0, -1.5]
    assert signbalance(*batch, GROUP, ZERO, rho_max=4.0).clamped == 0  # at the cap is not above it
    whole = signbalance(*batch, BATCH, ZERO, rho_max=1.0)
    assert (whole.clamped, whole.largest_ratio) == (1, 1.5)
    assert whole.advantages.values_PG[3].tolist() == [-1.0] * 5


def test_groups_of_one_are_fine_in_batch_scope_only():
    one = tensor([[1.0], [0.0]])
    assert signbalance(one, one >= 0, BATCH, ZERO).advantages.values_PG.tolist() == [[1.0], [-1.0]]
    with pytest.raises(GuardError, match="group of one"):
        signbalance(one, one >= 0, GROUP, ZERO)


@pytest.mark.parametrize("rewards", [[1.0, 0.5], [1.0, 0.0, -1.0], [2.0, 0.0], [1.0, 1e-9], [0.0, -1.0]])
@pytest.mark.parametrize("scope", Scope)
def test_rewards_that_are_not_binary_are_refused(rewards, scope):
    given_PG = tensor([rewards], dtype=torch.float64)
    with pytest.raises(GuardError, match="exactly two values, 1 for right and 0 or -1 for wrong"):
        signbalance(given_PG, torch.ones_like(given_PG, dtype=torch.bool), scope, ZERO)


def test_an_unscorable_placeholder_is_no_third_value():
    rewards = tensor([[1.0, 0.0, 0.25]])
    found = signbalance(rewards, tensor([[True, True, False]]), GROUP, ZERO).advantages
    assert found.values_PG.tolist() == [[1.0, -1.0, 0.0]]


def test_refusals_of_shapes():
    for scope in Scope:
        with pytest.raises(GuardError, match="one shape"):
            signbalance(torch.ones(2, 3), torch.ones(3, 2).bool(), scope, ZERO)
        with pytest.raises(GuardError, match="not finite"):
            signbalance(tensor([[1.0, float("nan")]]), torch.ones(1, 2).bool(), scope, ZERO)
