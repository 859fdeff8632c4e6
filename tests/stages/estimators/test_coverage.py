"""Coverage estimates against brute force over all k-subsets, and their order relations."""

from fractions import Fraction
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import GuardError
from stages.estimators.coverage import both_at_k, distinct_at_k, either_at_k, pass_at_k


@st.composite
def samples(draw):
    """(n, counts of correct strategies, k) with n <= 8."""
    n = draw(st.integers(1, 8))
    labels = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))  # 0 is wrong
    return n, [labels.count(s) for s in (1, 2, 3)], draw(st.integers(1, n))


def subsets(n, counts, k):
    labels = [s for s, count in enumerate(counts, 1) for _ in range(count)]
    return list(combinations([*labels, *[0] * (n - len(labels))], k))


@given(samples())
def test_all_estimates_equal_the_mean_over_subsets(case):
    n, counts, k = case
    chosen = subsets(n, counts, k)
    assert pass_at_k(n, sum(counts), k) == pytest.approx(fmean(any(c) for c in chosen), abs=1e-15)
    assert distinct_at_k(n, counts, k) == pytest.approx(fmean(len(set(c) - {0}) for c in chosen), abs=1e-14)
    a, b = counts[0], counts[1]
    assert both_at_k(n, a, b, k) == pytest.approx(fmean({1, 2} <= set(c) for c in chosen), abs=1e-15)
    assert either_at_k(n, a, b, k) == pytest.approx(fmean(bool({1, 2} & set(c)) for c in chosen), abs=1e-15)


@pytest.mark.oracle("1.1")
@given(st.integers(1, 3000), st.data())
def test_order_relations(n, data):
    k = data.draw(st.integers(1, n))
    counts = [data.draw(st.integers(0, n // 4)) for _ in range(4)]
    a, b = counts[:2]
    distinct = distinct_at_k(n, counts, k)
    assert 0 <= distinct <= sum(c > 0 for c in counts)
    assert pass_at_k(n, sum(counts), k) <= distinct * (1 + 1e-15)
    both, either = both_at_k(n, a, b, k), either_at_k(n, a, b, k)
    assert both <= min(pass_at_k(n, a, k), pass_at_k(n, b, k)) <= either <= 1
    if k < n:
        assert distinct <= distinct_at_k(n, counts, k + 1)
        assert both <= both_at_k(n, a, b, k + 1)
        assert pass_at_k(n, a, k) <= pass_at_k(n, a, k + 1)


@pytest.mark.oracle("1.1")
@given(st.integers(1, 500), st.data())
def test_one_strategy_makes_distinct_equal_to_pass(n, data):
    k, c = data.draw(st.integers(1, n)), data.draw(st.integers(0, n))
    assert distinct_at_k(n, [c], k) == pass_at_k(n, c, k)
    assert pass_at_k(n, c, 1) == c / n


@pytest.mark.parametrize(("n", "k"), [(5000, 2500), (5000, 1), (4096, 4096)])
def test_large_n_is_correctly_rounded(n, k):
    assert pass_at_k(n, 1, k) == k / n
    two = 1 - Fraction((n - k) * (n - k - 1), n * (n - 1))
    assert pass_at_k(n, 2, k) == float(two)
    assert pass_at_k(n, n - k + 1, k) == 1.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: pass_at_k(4, 1, 5), "at least 5 scorable samples, got 4"),
        (lambda: pass_at_k(4, 1, 0), "k = 0"),
        (lambda: pass_at_k(4, 5, 1), "5 of 4"),
        (lambda: pass_at_k(4, -1, 1), "-1 of 4"),
        (lambda: distinct_at_k(4, [3, 2], 1), "count each sample once"),
        (lambda: both_at_k(4, 3, 2, 1), "count each sample once"),
        (lambda: distinct_at_k(0, [], 1), "got 0"),
    ],
)
def test_impossible_counts_are_refused(call, match):
    with pytest.raises(GuardError, match=match):
        call()
