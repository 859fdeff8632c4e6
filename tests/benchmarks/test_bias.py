"""The benchmark's exact moments, against groups that are really drawn."""

import pytest
import torch

from benchmarks.proof.bias import (
    DIVERGENCE,
    GROUP,
    GROUP_MEAN,
    LEAVE_ONE_OUT,
    NO_BASELINE,
    Combination,
    Problem,
    combinations,
    computable,
    divergence,
    moments,
    refusal,
    scores_SP,
    token_covariance,
)
from benchmarks.proof.tabular import flat
from stages.estimators.advantages import dr_grpo, rloo
from stages.estimators.params import Level, Unregularised

GROUPS = 8_000


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.random(3)


@pytest.mark.parametrize("baseline", [NO_BASELINE, GROUP_MEAN, LEAVE_ONE_OUT])
@pytest.mark.parametrize("centred", [False, True])
def test_expectation_and_variance_are_those_of_drawn_groups(
    problem: Problem, baseline: str, centred: bool
) -> None:
    combination = Combination(Level.TOKEN, "clip [.8, 1.2]", baseline, centred)
    drawn = torch.Generator().manual_seed(0)
    rows_NG = torch.multinomial(
        problem.sampler.probability_S(), GROUPS * GROUP, replacement=True, generator=drawn
    ).view(GROUPS, GROUP)
    rewards_NG = problem.reward_S[rows_NG]
    scorable_NG = torch.ones_like(rewards_NG, dtype=torch.bool)
    values_NG = {
        NO_BASELINE: rewards_NG,
        GROUP_MEAN: dr_grpo(rewards_NG, scorable_NG).values_PG,
        LEAVE_ONE_OUT: rloo(rewards_NG, scorable_NG).values_PG,
    }[baseline]
    scores = scores_SP(problem, combination.ratio, centred)
    gradient_NP = (values_NG.unsqueeze(2) * scores[rows_NG]).mean(1)
    found = moments(problem, combination)
    assert float(gradient_NP.var(0).sum()) == pytest.approx(found.variance, rel=0.06)
    true = -flat(problem.policy.true_gradient(problem.reward_S))
    error = float((gradient_NP.mean(0) - true).norm() / true.norm())
    assert error == pytest.approx(
        found.bias_true, abs=4 * (found.variance / GROUPS) ** 0.5 / float(true.norm())
    )


def test_scores_are_gradients_of_the_table(problem: Problem) -> None:
    """Weighted by p and the reward, the on-policy scores are the exact gradient."""
    on_policy = Problem(problem.policy, problem.policy, problem.reward_S)
    combination = Combination(Level.TOKEN, "exact r", NO_BASELINE, False)
    weighted_P = (problem.policy.probability_S() * problem.reward_S) @ scores_SP(
        on_policy, combination.ratio, False
    )
    assert torch.allclose(weighted_P, -flat(problem.policy.true_gradient(problem.reward_S)), atol=1e-12)
    assert torch.allclose(weighted_P, token_covariance(on_policy, combination.ratio), atol=1e-12)


def test_the_two_policies_are_as_far_apart_as_stated(problem: Problem) -> None:
    assert divergence(problem.policy, problem.sampler) == pytest.approx(DIVERGENCE, abs=1e-6)


def test_what_is_unbiased_and_what_is_refused(problem: Problem) -> None:
    """Token level: centred or exact, leave-one-out has C_tok; the exact product has TRUE."""
    for combination in combinations():
        if combination.baseline != LEAVE_ONE_OUT:
            continue
        exact = isinstance(combination.ratio.regulariser, Unregularised)
        if combination.level is not Level.TOKEN and (
            combination.centred or combination.regulariser == "1 (none)"
        ):
            assert not computable(combination) and refusal(combination)
            continue
        assert refusal(combination) is None
        found = moments(problem, combination)
        if found.bias_token is not None:
            assert (found.bias_token < 1e-12) == (combination.centred or exact), combination
        assert (found.bias_true < 1e-12) == (combination.level is Level.SEQUENCE and exact), combination
