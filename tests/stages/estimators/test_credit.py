"""DRACO's redistribution: the oracles of methods.md 5 on random trajectories, worked examples, the cap."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import tensor

from stages.errors import GuardError
from stages.estimators import credit
from stages.estimators.advantages import grpo
from stages.estimators.credit import Fallback, redistribute, require_conserved, rubric_reward, step_quality_RS

NONE, NO_CITATION, NO_WEIGHT = Fallback.NONE, Fallback.NO_CITATION, Fallback.NO_WEIGHT
steps = st.lists(  # tokens, passes, fails; a step without tokens cannot be cited
    st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 3)).map(
        lambda s: s if s[0] else (0, 0, 0)
    ),
    min_size=1,
    max_size=7,
).filter(lambda found: any(tokens for tokens, _, _ in found))
advantages = st.sampled_from([-3.0, -0.3, 0.0, 0.7, 2.0])
caps = st.sampled_from([None, 1.0, 1.5, 3.0])


def shaped(trajectory):
    return tuple(tensor([[float(step[place]) for step in trajectory]]).double() for place in range(3))


def of_one(advantage, trajectory, cap=None):
    return redistribute(tensor([advantage], dtype=torch.float64), *shaped(trajectory), cap)


def per_token(advantage, trajectory, cap=None):
    return of_one(advantage, trajectory, cap).advantages_RS[0].tolist()


def totals(advantage, trajectory, cap=None):
    pairs = zip(per_token(advantage, trajectory, cap), trajectory, strict=True)
    return [value * tokens for value, (tokens, _, _) in pairs]


def by_the_formula(advantage, trajectory):
    """a_j = A N w_j / (n_j sum of w), in plain numbers; uniform where there is no citation or no weight."""
    cited = [p / (p + f) for n, p, f in trajectory if n and p + f]
    whole = sum(n for n, _, _ in trajectory)
    uniform = [advantage if n else 0.0 for n, _, _ in trajectory]
    if not cited:
        return uniform, NO_CITATION
    quality = [0.0 if not n else p / (p + f) if p + f else sum(cited) / len(cited) for n, p, f in trajectory]
    weight = [
        0.0 if not n else q if advantage >= 0 else 1 - q
        for q, (n, _, _) in zip(quality, trajectory, strict=True)
    ]
    if not sum(weight):
        return uniform, NO_WEIGHT
    return [
        advantage * whole * w / (n * sum(weight)) if n else 0.0
        for w, (n, _, _) in zip(weight, trajectory, strict=True)
    ], NONE


@settings(deadline=None)
@given(advantages, steps)
def test_the_closed_form(advantage, trajectory):
    found = of_one(advantage, trajectory)
    expected, fallback = by_the_formula(advantage, trajectory)
    assert found.advantages_RS[0].tolist() == pytest.approx(expected, abs=1e-10)
    assert found.fallback_R == (fallback,)
    assert (found.amplified, found.spilled) == (0, 0)
    if advantage:
        assert found.largest == pytest.approx(max(e / advantage for e in expected))


@pytest.mark.oracle("5.1")
@settings(deadline=None)
@given(advantages, steps, caps)
def test_the_token_weighted_sum_is_conserved(advantage, trajectory, cap):
    whole = advantage * sum(tokens for tokens, _, _ in trajectory)
    assert sum(totals(advantage, trajectory, cap)) == pytest.approx(whole, rel=1e-12, abs=1e-12)


@pytest.mark.oracle("5.1")
def test_neither_the_plain_sum_nor_the_rubrics_reward_is_conserved():
    found = per_token(1.0, [(2, 1, 0), (4, 1, 0)])
    assert sum(found) == pytest.approx(2.25)  # neither A = 1 nor S A = 2
    assert float(rubric_reward(tensor(2.0), tensor(0.0))) == 1.0


@pytest.mark.oracle("5.2")
@settings(deadline=None)
@given(advantages, steps, caps)
def test_no_step_has_the_opposite_sign_and_none_without_tokens_has_any(advantage, trajectory, cap):
    for value, (tokens, _, _) in zip(per_token(advantage, trajectory, cap), trajectory, strict=True):
        assert value * advantage >= 0
        assert value == 0 if not (tokens and advantage) else True


@pytest.mark.oracle("5.3")
@settings(deadline=None)
@given(advantages, steps, st.integers(0, 6), caps)
def test_scale_equivariance_and_a_steps_share_does_not_depend_on_lengths(advantage, trajectory, place, cap):
    scaled = per_token(7.5 * advantage, trajectory, cap)
    assert scaled == pytest.approx([7.5 * a for a in per_token(advantage, trajectory, cap)], abs=1e-10)
    assume(advantage and of_one(advantage, trajectory).fallback_R == (NONE,))
    place %= len(trajectory)
    tokens, passed, failed = trajectory[place]
    assume(tokens)
    longer = [*trajectory[:place], (3 * tokens, passed, failed), *trajectory[place + 1 :]]
    before, after = totals(advantage, trajectory), totals(advantage, longer)
    assert [t / sum(after) for t in after] == pytest.approx([t / sum(before) for t in before], abs=1e-10)


@pytest.mark.oracle("5.4")
def test_worked_examples():
    assert per_token(1.0, [(2, 1, 0), (4, 1, 0)]) == pytest.approx([1.5, 0.75])
    assert per_token(1.0, [(2, 1, 1), (4, 1, 0)]) == pytest.approx([1.0, 1.0])


@pytest.mark.oracle("5.4")
@pytest.mark.parametrize("lengths", [[100, 50, 40, 30, 20, 60, 10], [1, 1, 1, 1, 1, 1, 304]])
def test_the_example_of_seven_steps(lengths):
    """Qualities 1, 1, 1/2, 1/2, 1/3, 1/3 and an uncited one with their mean .611; R = -.2; 310 tokens."""
    cited = [(1, 0), (1, 0), (1, 1), (1, 1), (1, 2), (1, 2), (0, 0)]
    trajectory = [(n, p, f) for n, (p, f) in zip(lengths, cited, strict=True)]
    expected = [72.47, 72.47, 36.23, 36.23, 24.16, 24.16, 44.29]
    assert totals(1.0, trajectory) == pytest.approx(expected, abs=0.005)
    assert sum(lengths) == 310
    tokens, passed, failed = shaped(trajectory)
    assert float(step_quality_RS(passed, failed, tokens)[0, 6]) == pytest.approx(11 / 18)
    assert float(rubric_reward(tensor(2), tensor(3))) == pytest.approx(-0.2)


@pytest.mark.oracle("5.5")
def test_a_winner_is_credited_for_quality_and_a_loser_blamed_for_its_lack():
    trajectory = [(5, 1, 0), (5, 1, 1)]
    assert per_token(1.0, trajectory) == pytest.approx([4 / 3, 2 / 3])
    assert per_token(-1.0, trajectory) == pytest.approx([0.0, -2.0])


@pytest.mark.oracle("5.5")
@settings(deadline=None)
@given(steps)
def test_swapping_passes_and_fails_turns_a_winner_into_its_loser(trajectory):
    swapped = [(n, f, p) for n, p, f in trajectory]
    assert per_token(-1.0, swapped) == pytest.approx([-a for a in per_token(1.0, trajectory)], abs=1e-10)


@pytest.mark.oracle("5.6")
def test_equal_quality_is_not_plain_grpo_and_no_citation_is():
    assert per_token(1.0, [(10, 1, 0), (100, 1, 0)]) == pytest.approx([5.5, 0.55])
    uncited = of_one(0.3, [(10, 0, 0), (100, 0, 0), (0, 0, 0)])
    assert uncited.advantages_RS.tolist() == [[0.3, 0.3, 0.0]]  # bit for bit
    assert uncited.fallback_R == (NO_CITATION,)


@pytest.mark.parametrize("advantage, passed, failed", [(0.3, 0, 2), (-0.3, 2, 0)])
def test_without_weight_the_advantage_stays_uniform_and_says_so(advantage, passed, failed):
    """A winner whose cited steps all failed, a loser whose cited steps all passed: nothing to move it by."""
    found = of_one(advantage, [(3, passed, failed), (7, 0, 0)])
    assert found.advantages_RS.tolist() == [[advantage, advantage]]
    assert (found.fallback_R, found.largest) == ((NO_WEIGHT,), 1.0)


@pytest.mark.oracle("5.7")
@settings(deadline=None, max_examples=20)
@given(st.lists(steps, min_size=2, max_size=5), caps)
def test_a_groups_token_weighted_sum_is_grpos(group, cap):
    """Of a padded group with GRPO's advantage of the rubric's reward: not zero, for lengths differ."""
    width = max(map(len, group))
    padded = [[*trajectory, *[(0, 0, 0)] * (width - len(trajectory))] for trajectory in group]
    tokens, passed, failed = (torch.cat(parts) for parts in zip(*map(shaped, padded), strict=True))
    reward_R = rubric_reward(passed.sum(1), failed.sum(1))
    advantage_R = grpo(reward_R[None], torch.ones(1, len(group)).bool()).values_PG[0]
    found = redistribute(advantage_R, tokens, passed, failed, cap)
    expected = float((advantage_R * tokens.sum(1)).sum())
    assert float((found.advantages_RS * tokens).sum()) == pytest.approx(expected, abs=1e-9)
    for row, trajectory in enumerate(group):
        alone = per_token(float(advantage_R[row]), trajectory, cap)
        assert found.advantages_RS[row, : len(alone)].tolist() == pytest.approx(alone, abs=1e-12)
        assert not found.advantages_RS[row, len(alone) :].any()


@pytest.mark.oracle("5.8")
@settings(deadline=None)
@given(steps, st.integers(0, 6))
def test_one_more_pass_never_lowers_a_cited_steps_share_for_a_winner(trajectory, place):
    """Where the advantage was not uniform before: see the next test."""
    place %= len(trajectory)
    tokens, passed, failed = trajectory[place]
    assume(tokens and of_one(1.0, trajectory).fallback_R == (NONE,))
    better = [*trajectory[:place], (tokens, passed + 1, failed), *trajectory[place + 1 :]]
    assert totals(1.0, better)[place] >= totals(1.0, trajectory)[place] - 1e-10


@pytest.mark.oracle("5.8")
def test_the_first_pass_of_a_trajectory_may_lower_the_share_of_the_long_step_that_it_cites():
    """Not "never" as methods.md has it: leaving a fallback jumps from shares by length to shares by step."""
    for failed in (0, 1):
        before, after = [(99, 0, failed), (1, 0, 0)], [(99, 1, failed), (1, 0, 0)]
        assert totals(1.0, before) == pytest.approx([99, 1])
        assert totals(1.0, after) == pytest.approx([50, 50])


def filled(unbounded, lengths, cap):
    """min(cap, level x unbounded), its token-weighted sum the number of tokens: the level by bisection.

    Where that cannot be, the steps without weight share what is left evenly.
    """

    def volume(level):
        return sum(n * min(cap, level * x) for n, x in zip(lengths, unbounded, strict=True))

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if volume(middle) < sum(lengths) else (low, middle)
    rest = sum(n for n, x in zip(lengths, unbounded, strict=True) if n and not x)
    even = (sum(lengths) - volume(high)) / rest if rest else 0.0
    return [
        0.0 if not n else min(cap, high * x) if x else even for n, x in zip(lengths, unbounded, strict=True)
    ]


@settings(deadline=None)
@given(advantages.filter(bool), steps, st.sampled_from([1.0, 1.5, 3.0]))
def test_the_cap_is_held_by_filling_up_the_others(advantage, trajectory, cap):
    found = of_one(advantage, trajectory, cap)
    unbounded, fallback = by_the_formula(1.0 if advantage > 0 else -1.0, trajectory)
    expected = filled([abs(x) for x in unbounded], [n for n, _, _ in trajectory], cap)
    factors = [a / advantage for a in found.advantages_RS[0].tolist()]
    assert factors == pytest.approx(expected, abs=1e-7)
    assert found.largest <= cap * (1 + 1e-8) and found.fallback_R == (fallback,)


def test_the_cap_is_counted_and_fills_the_steps_of_weight_first():
    trajectory = [(1, 1, 0), (9, 1, 0), (90, 0, 1)]
    assert per_token(1.0, trajectory) == pytest.approx([50, 50 / 9, 0])
    capped = of_one(1.0, trajectory, 20.0)
    assert capped.advantages_RS[0].tolist() == pytest.approx([20.0, 80 / 9, 0.0])
    assert (capped.amplified, capped.spilled, capped.largest) == (1, 0, 20.0)
    full = of_one(-2.0, [(1, 0, 1), (9, 0, 1), (90, 1, 0)], 4.0)
    assert full.advantages_RS[0].tolist() == pytest.approx([-8.0, -8.0, -2 * 60 / 90])
    assert (full.amplified, full.spilled) == (2, 1)
    second_round = of_one(
        1.0, [(1, 1, 0), (3, 1, 0), (16, 1, 1)], 2.5
    )  # the second exceeds once the first is held
    assert second_round.advantages_RS[0].tolist() == pytest.approx([2.5, 2.5, 0.625])
    assert (second_round.amplified, second_round.spilled) == (2, 0)


def test_a_cap_of_one_is_grpo_and_one_that_nothing_reaches_changes_nothing():
    trajectory = [(1, 1, 0), (9, 1, 2), (90, 0, 1)]
    assert per_token(0.7, trajectory, 1.0) == pytest.approx([0.7] * 3)
    wide = of_one(0.7, trajectory, 1000.0)
    assert wide.advantages_RS[0].tolist() == per_token(0.7, trajectory)
    assert (wide.amplified, wide.spilled) == (0, 0)
    assert of_one(1.0, [(1, 0, 0), (9, 0, 0)], 1.0).amplified == 0


def test_dtype_of_the_advantage_and_integer_counts():
    counts = tensor([[2, 4]]), tensor([[1, 1]]), tensor([[1, 0]])
    found = redistribute(tensor([1.0]), *counts).advantages_RS
    assert found.dtype == torch.float32 and found.tolist() == [[1.0, 1.0]]


def test_a_criterion_that_does_not_apply_counts_nowhere():
    reward = rubric_reward(tensor([3, 0, 0, 1]), tensor([1, 2, 0, 2]))
    assert reward.tolist() == pytest.approx([0.5, -1.0, 0.0, -1 / 3], abs=1e-15)


@pytest.mark.parametrize(
    "given_RS, sentence",
    [([[1.5, 1.0]], "off by"), ([[3.0, -1.0]], "sign opposite"), ([[float("nan"), 1.0]], "off by")],
)
def test_what_is_not_conserved_or_against_the_sign_is_refused(given_RS, sentence):
    with pytest.raises(GuardError, match=sentence):
        require_conserved(tensor([1.0]), tensor([[1, 1]]), tensor(given_RS))


def test_an_advantage_without_a_step_is_refused_and_none_of_a_zero():
    with pytest.raises(GuardError, match="step without tokens"):
        require_conserved(tensor([1.0]), tensor([[1, 0]]), tensor([[1.0, 5.0]]))
    with pytest.raises(GuardError, match="off by"):
        require_conserved(tensor([0.0]), tensor([[1, 1]]), tensor([[1.0, 1.0]]))


def test_the_result_is_checked_at_run_time(monkeypatch):
    def lossy(weight_RS, tokens_RS, cap):
        return weight_RS, weight_RS > 2, (weight_RS > 2).any(1)

    monkeypatch.setattr(credit, "_amplification_RS", lossy)
    with pytest.raises(GuardError, match="off by"):
        of_one(1.0, [(2, 1, 1), (4, 1, 0)])


def test_refusals():
    one, two = tensor([1.0]), tensor([[2, 4]])
    none = torch.zeros(1, 2)
    with pytest.raises(GuardError, match="one advantage a trajectory"):
        redistribute(torch.ones(2), two, none, none)
    with pytest.raises(GuardError, match="one advantage a trajectory"):
        redistribute(one, two, torch.zeros(1, 3), none)
    with pytest.raises(GuardError, match="finite float"):
        redistribute(tensor([float("nan")]), two, none, none)
    with pytest.raises(GuardError, match="at least 0"):
        redistribute(one, two, none - 1, none)
    with pytest.raises(GuardError, match="at least 0"):
        rubric_reward(tensor([1.0]), tensor([float("inf")]))
    with pytest.raises(GuardError, match="no token that the policy wrote"):
        redistribute(one, none, none, none)
    with pytest.raises(GuardError, match="only the policy's own steps"):
        redistribute(one, tensor([[2, 0]]), none, tensor([[0, 1]]))
    with pytest.raises(GuardError, match="below 1 the advantage cannot be conserved"):
        redistribute(one, two, none, none, 0.9)
