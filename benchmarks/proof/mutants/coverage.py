"""Coverage estimates: pass@k, distinct@k, both readings, either."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_coverage.py"
FILE = "stages/estimators/coverage.py"

MUTANTS = [
    Mutant(
        name="pass@k of k draws with replacement",
        file=FILE,
        old="return _hitting(n, correct, k) / comb(n, k)",
        new="return 1 - (1 - correct / n) ** k",
    ),
    Mutant(
        name="pass@k divided by the orders of a subset too",
        file=FILE,
        old="return _hitting(n, correct, k) / comb(n, k)",
        new="return _hitting(n, correct, k) / n**k",
    ),
    Mutant(
        name="pass@k of one sample fewer",
        file=FILE,
        old="comb(n - marked, k)",
        new="comb(max(0, n - marked - 1), k)",
    ),
    Mutant(
        name="a subset of wrong samples counted as a hit",
        file=FILE,
        old="return _subsets(n, k) - comb(n - marked, k)",
        new="return _subsets(n, k)",
    ),
    Mutant(
        name="distinct@k of the strategies' mean",
        file=FILE,
        old="for count in counts) / _subsets(n, k)",
        new="for count in counts) / max(1, len(counts)) / _subsets(n, k)",
    ),
    Mutant(
        name="distinct@k counts the correct samples",
        file=FILE,
        old="sum(_hitting(n, count, k) for count in counts) / _subsets(n, k)",
        new="k * sum(counts) / n / (_subsets(n, k) / comb(n, k))",
    ),
    Mutant(
        name="strategies that were counted twice are taken",
        file=FILE,
        old="if sum(counts) > n:",
        new="if False:",
    ),
    Mutant(
        name="readings that were counted twice are taken",
        file=FILE,
        old=(
            "    if n_a + n_b > n:\n"
            '        raise GuardError(f"readings seen {n_a} and {n_b} times in {n} samples: count '
            'each sample once")\n'
            "    hit_both"
        ),
        new="    hit_both",
    ),
    Mutant(
        name="both readings without inclusion and exclusion",
        file=FILE,
        old=" - _hitting(n, n_a + n_b, k)",
        new="",
    ),
    Mutant(
        name="both readings as if independent",
        file=FILE,
        old="return hit_both / comb(n, k)",
        new="return _hitting(n, n_a, k) * _hitting(n, n_b, k) / comb(n, k) ** 2",
    ),
    Mutant(
        name="either reading as the better of the two",
        file=FILE,
        old="return pass_at_k(n, n_a + n_b, k)",
        new="return pass_at_k(n, max(n_a, n_b), k)",
    ),
    Mutant(
        name="k beyond the samples is taken",
        file=FILE,
        old="if not 1 <= k <= n:",
        new="if not 1 <= k:",
    ),
    Mutant(
        name="k of nothing is taken",
        file=FILE,
        old="if not 1 <= k <= n:",
        new="if not k <= n:",
    ),
    Mutant(
        name="a negative count is taken",
        file=FILE,
        old="if not 0 <= marked <= n:",
        new="if not marked <= n:",
    ),
]
