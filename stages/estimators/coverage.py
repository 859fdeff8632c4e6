"""Unbiased estimates of what k samples cover, from n >= k samples of which some are correct.

All are ratios of numbers of k-subsets, computed in integers and divided once: correctly rounded for any n.
Unscorable samples are left out of n by the caller.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import comb

from stages.errors import GuardError


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that k of the n samples hold a correct one (Chen et al., arXiv 2107.03374).

    Raises GuardError unless 1 <= k <= n and 0 <= correct <= n.
    """
    return _hitting(n, correct, k) / comb(n, k)


def distinct_at_k(n: int, counts: Sequence[int], k: int) -> float:
    """Expected number of distinct correct strategies among k of the n samples (rarefaction).

    `counts`: how often each correct strategy was seen. Raises GuardError if they exceed n.
    """
    if sum(counts) > n:
        raise GuardError(
            f"the strategies were seen {sum(counts)} times in {n} samples: count each sample once"
        )
    return sum(_hitting(n, count, k) for count in counts) / _subsets(n, k)


def both_at_k(n: int, n_a: int, n_b: int, k: int) -> float:
    """Probability that k of the n samples hold a correct answer to each of two readings.

    `n_a`, `n_b`: samples correct under exactly that reading. Raises GuardError as `distinct_at_k`.
    """
    if n_a + n_b > n:
        raise GuardError(f"readings seen {n_a} and {n_b} times in {n} samples: count each sample once")
    hit_both = _hitting(n, n_a, k) + _hitting(n, n_b, k) - _hitting(n, n_a + n_b, k)
    return hit_both / comb(n, k)


def either_at_k(n: int, n_a: int, n_b: int, k: int) -> float:
    """Probability that k of the n samples hold a correct answer to at least one of two readings."""
    if n_a + n_b > n:
        raise GuardError(f"readings seen {n_a} and {n_b} times in {n} samples: count each sample once")
    return pass_at_k(n, n_a + n_b, k)


def _subsets(n: int, k: int) -> int:
    if not 1 <= k <= n:
        raise GuardError(
            f"coverage at k = {k} needs at least {k} scorable samples, got {n}: sample more or lower k"
        )
    return comb(n, k)


@lru_cache(maxsize=65536)
def _hitting(n: int, marked: int, k: int) -> int:
    """How many k-subsets of n samples hold at least one of the `marked` ones."""
    if not 0 <= marked <= n:
        raise GuardError(f"{marked} of {n} samples is not a count")
    return _subsets(n, k) - comb(n - marked, k)
