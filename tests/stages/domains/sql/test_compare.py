import itertools
import random

from stages.domains.sql.compare import same


def test_bags_match_in_any_order_and_sequences_only_in_theirs() -> None:
    rows = [(1, "x"), (2, "y"), (2, "y")]
    for shuffled in itertools.permutations(rows):
        assert same(rows, list(shuffled), ordered=False)
        assert same(rows, list(shuffled), ordered=True) == (list(shuffled) == rows)
    assert not same(rows, [(1, "x"), (1, "x"), (2, "y")], ordered=False)


def test_floats_within_the_tolerance_match_wherever_sorting_puts_them() -> None:
    rng = random.Random(0)
    rows = [(round(rng.uniform(0, 2), 1), round(rng.uniform(0, 2), 1), "k") for _ in range(60)]
    noisy = [(a + rng.uniform(-1e-12, 1e-12), b + rng.uniform(-1e-12, 1e-12), k) for a, b, k in rows]
    rng.shuffle(noisy)
    assert same(rows, noisy, ordered=False)
    noisy[7] = (noisy[7][0] + 1e-3, *noisy[7][1:])
    assert not same(rows, noisy, ordered=False)


def test_null_text_and_number_are_different() -> None:
    for left, right in itertools.combinations([(None,), (0,), ("0",), (b"0",)], 2):
        assert not same([left], [right], ordered=False)
        assert not same([left], [right], ordered=True)
    assert same([(None, 1.0)], [(None, 1)], ordered=False)


def test_large_integers_are_compared_exactly() -> None:
    assert not same([(2**60,)], [(2**60 + 1,)], ordered=False)
