"""GAE against its double sum, and its expected policy gradient on an enumerable policy."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from benchmarks.proof.tabular import Tabular, flat, numerical_gradient
from stages.errors import GuardError
from stages.estimators.advantages import gae_BT, terminal_rewards_BT, value_loss_BT

NAN = float("nan")
seeds = st.integers(0, 10**6)
factors = st.sampled_from([0.25, 0.9, 1.0])
number = st.integers(-4, 4).map(float)
rows = st.lists(st.tuples(number, number, st.booleans()), min_size=1, max_size=8)


def double_sum(rewards, values, discount, trace):
    """Of one row's trained tokens: advantage_t = sum over l of (discount trace)^l delta_(t+l)."""
    after = [*values[1:], 0.0][: len(values)]
    delta = [r + discount * n - v for r, v, n in zip(rewards, values, after, strict=True)]
    return [
        sum((discount * trace) ** (late - t) * delta[late] for late in range(t, len(delta)))
        for t in range(len(delta))
    ]


def as_tensors(row):
    """Untrained tokens hold no number at all."""
    mask_BT = tensor([[trained for _, _, trained in row]])
    rewards_BT = tensor([[reward for reward, _, _ in row]], dtype=torch.float64).where(mask_BT, NAN)
    values_BT = tensor([[value for _, value, _ in row]], dtype=torch.float64).where(mask_BT, NAN)
    return rewards_BT, values_BT, mask_BT


@settings(deadline=None)
@given(rows, factors, st.sampled_from([0.0, 0.5, 1.0]))
def test_double_sum_over_the_trained_tokens_alone(row, discount, trace):
    rewards_BT, values_BT, mask_BT = as_tensors(row)
    advantages_BT, returns_BT = gae_BT(rewards_BT, values_BT, mask_BT, discount, trace)
    trained = [(reward, value) for reward, value, kept in row if kept]
    expected = double_sum([r for r, _ in trained], [v for _, v in trained], discount, trace)
    assert advantages_BT[mask_BT].tolist() == pytest.approx(expected, abs=1e-10)
    assert returns_BT[mask_BT].tolist() == pytest.approx(
        [a + v for a, (_, v) in zip(expected, trained, strict=True)], abs=1e-10
    )
    assert not advantages_BT[~mask_BT].any() and not returns_BT[~mask_BT].any()


@settings(deadline=None)
@given(rows)
def test_full_trace_is_reward_to_come_minus_value(row):
    rewards_BT, values_BT, mask_BT = as_tensors(row)
    advantages_BT, returns_BT = gae_BT(rewards_BT, values_BT, mask_BT, 1.0, 1.0)
    to_come_N = rewards_BT[mask_BT].flip(0).cumsum(0).flip(0)
    torch.testing.assert_close(returns_BT[mask_BT], to_come_N, rtol=0, atol=1e-10)
    torch.testing.assert_close(advantages_BT[mask_BT], to_come_N - values_BT[mask_BT], rtol=0, atol=1e-10)


@settings(deadline=None)
@given(rows, factors)
def test_no_trace_is_the_one_step_difference(row, discount):
    rewards_BT, values_BT, mask_BT = as_tensors(row)
    advantages_BT, _ = gae_BT(rewards_BT, values_BT, mask_BT, discount, 0.0)
    values_N = values_BT[mask_BT]
    after_N = torch.cat([values_N[1:], values_N.new_zeros(min(1, len(values_N)))])
    expected_N = rewards_BT[mask_BT] + discount * after_N - values_N
    torch.testing.assert_close(advantages_BT[mask_BT], expected_N, rtol=0, atol=1e-10)


def test_rows_do_not_see_each_other():
    rewards = tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    values = tensor([[0.5, 0.25, 9.0], [1.0, 1.0, 1.0]])
    mask = tensor([[True, True, False], [True, False, False]])
    together, _ = gae_BT(rewards, values, mask, 0.9, 0.8)
    for row in range(2):
        alone, _ = gae_BT(rewards[[row]], values[[row]], mask[[row]], 0.9, 0.8)
        assert torch.equal(alone[0], together[row])


def gradient_with(policy, reward_S, values_ST, trace):
    """Expected gradient of -sum over t of advantage_t log p_t, flat."""
    rewards_ST = terminal_rewards_BT(reward_S, policy.mask_ST)
    advantages_ST, _ = gae_BT(rewards_ST, values_ST, policy.mask_ST, 1.0, trace)
    return flat(policy.expected_gradient(-(advantages_ST * policy.logprobs_ST()).sum(1), policy))


def by_prefix(policy, seed):
    """Arbitrary values of the prefixes."""
    drawn = torch.Generator().manual_seed(seed)
    tables = [
        torch.randn(policy.vocabulary**t, dtype=torch.float64, generator=drawn) for t in range(policy.length)
    ]
    return torch.stack([table[policy.prefix_ST[:, t]] for t, table in enumerate(tables)], 1)


def exact_values(policy, reward_S):
    """E[reward | prefix] by summing over the sequences that share it."""
    probability_S = policy.probability_S()
    columns = []
    for t in range(policy.length):
        prefix_S = policy.prefix_ST[:, t]
        mass = torch.zeros(policy.vocabulary**t, dtype=torch.float64).index_add(0, prefix_S, probability_S)
        worth = torch.zeros_like(mass).index_add(0, prefix_S, probability_S * reward_S)
        columns.append((worth / mass)[prefix_S])
    return torch.stack(columns, 1)


@settings(deadline=None, max_examples=20)
@given(seed=seeds)
def test_any_values_leave_the_true_gradient_with_full_trace_and_exact_ones_with_any(seed):
    policy = Tabular.random(3, 3, seed)
    reward_S = torch.randn(27, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    true = flat(policy.true_gradient(reward_S))
    arbitrary_ST = by_prefix(policy, seed)
    torch.testing.assert_close(gradient_with(policy, reward_S, arbitrary_ST, 1.0), true, rtol=0, atol=1e-10)
    for trace in (0.0, 0.5, 0.95):
        exact = gradient_with(policy, reward_S, exact_values(policy, reward_S), trace)
        torch.testing.assert_close(exact, true, rtol=0, atol=1e-10)
        assert (gradient_with(policy, reward_S, arbitrary_ST, trace) - true).abs().max() > 1e-6


def test_values_of_the_prefix_after_the_token_are_biased():
    """What an off by one of the value head does: a baseline that has seen the action is none."""
    policy = Tabular.random(3, 2, 0)
    reward_S = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shifted_ST = torch.stack([policy.tokens_ST[:, 0].double(), policy.tokens_ST[:, 1].double()], 1)
    found = gradient_with(policy, reward_S, shifted_ST, 1.0)
    assert (found - flat(policy.true_gradient(reward_S))).abs().max() > 1e-2


def test_terminal_rewards_reach_the_last_trained_token():
    """Behind tool output, padding, or at the end (RAGEN 62, slime 1370)."""
    mask = tensor(
        [[False, True, True, False], [True, False, True, False], [False, False, False, True], [False] * 4]
    )
    found = terminal_rewards_BT(tensor([1.0, -2.0, 3.0, NAN]), mask)
    assert found.tolist() == [[0, 0, 1, 0], [0, 0, -2, 0], [0, 0, 0, 3], [0, 0, 0, 0]]
    advantages, _ = gae_BT(found, torch.zeros_like(found), mask, 1.0, 1.0)
    assert advantages.tolist() == [[0, 1, 1, 0], [-2, 0, -2, 0], [0, 0, 0, 3], [0, 0, 0, 0]]


def test_what_a_tool_wrote_changes_no_advantage():
    mask = tensor([[True, False, False, True, True]])
    rewards = terminal_rewards_BT(tensor([1.0]), mask)
    found = [
        gae_BT(rewards, tensor([[0.5, tool, -tool, 0.25, 0.0]]), mask, 0.5, 0.5)[0]
        for tool in (0.0, 7.0, float("inf"), NAN)
    ]
    for other in found[1:]:
        assert torch.equal(found[0], other)
    assert found[0][0, 0] == 0.5 * 0.25 - 0.5 + 0.25 * (-0.25 + 0.25 * 1.0)


def test_value_loss_moves_the_values_towards_fixed_returns():
    drawn = torch.Generator().manual_seed(0)
    values = torch.randn(2, 3, dtype=torch.float64, generator=drawn).requires_grad_()
    returns = torch.randn(2, 3, dtype=torch.float64, generator=drawn).requires_grad_()
    mask = tensor([[True, True, False], [True, False, True]])
    loss = value_loss_BT(values, returns, mask)
    pairs = zip(values[mask].tolist(), returns[mask].tolist(), strict=True)
    expected = [(value - target) ** 2 / 2 for value, target in pairs]
    assert loss[mask].tolist() == pytest.approx(expected)
    loss.sum().backward()
    assert returns.grad is None
    slope = numerical_gradient(lambda: float(value_loss_BT(values, returns, mask).sum()), [values])
    torch.testing.assert_close(values.grad.view(-1), slope, rtol=0, atol=1e-7)


def test_a_masked_value_that_is_no_number_costs_nothing_and_has_no_gradient():
    values = tensor([[1.0, NAN]], requires_grad=True)
    loss = value_loss_BT(values, tensor([[0.0, float("inf")]]), tensor([[True, False]]))
    assert loss.tolist() == [[0.5, 0.0]]
    loss.sum().backward()
    assert values.grad.tolist() == [[1.0, 0.0]]


def test_advantages_and_returns_carry_no_gradient():
    values = torch.zeros(1, 2, requires_grad=True)
    advantages, returns = gae_BT(torch.ones(1, 2), values, torch.ones(1, 2).bool(), 1.0, 0.95)
    assert not advantages.requires_grad and not returns.requires_grad


def test_refusals():
    zeros, trained = torch.zeros(1, 2), tensor([[True, False]])
    with pytest.raises(GuardError, match="one shape"):
        gae_BT(zeros, torch.zeros(2, 1), trained, 1.0, 1.0)
    for discount, trace in ((0.0, 1.0), (1.1, 1.0), (1.0, -0.1), (1.0, 1.1)):
        with pytest.raises(GuardError, match="discount <= 1"):
            gae_BT(zeros, zeros, trained, discount, trace)
    with pytest.raises(GuardError, match="would be lost: give it to a trained one"):
        gae_BT(tensor([[0.0, 1.0]]), zeros, trained, 1.0, 1.0)
    for broken in ((tensor([[NAN, 0.0]]), zeros), (zeros, tensor([[NAN, 0.0]]))):
        with pytest.raises(GuardError, match="not finite"):
            gae_BT(*broken, trained, 1.0, 1.0)
    with pytest.raises(GuardError, match=r"\[rows\] and a mask"):
        terminal_rewards_BT(torch.ones(2), trained)
    with pytest.raises(GuardError, match="not finite"):
        terminal_rewards_BT(tensor([NAN]), trained)
    with pytest.raises(GuardError, match="would be lost: leave the row out"):
        terminal_rewards_BT(tensor([1.0]), tensor([[False, False]]))
