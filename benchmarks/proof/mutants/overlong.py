"""Wrong versions of the punishment of length."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/advantages/test_overlong.py"

_FILE = "stages/estimators/advantages/overlong.py"

MUTANTS = [
    Mutant(
        name="the punishment grows from max_tokens on",
        file=_FILE,
        old="(max_tokens - cache - lengths_PG)",
        new="(max_tokens - lengths_PG)",
    ),
    Mutant(
        name="the punishment without a floor",
        file=_FILE,
        old=".clamp(min=-1.0, max=0.0)",
        new=".clamp(max=0.0)",
    ),
    Mutant(
        name="a short completion is paid for being short",
        file=_FILE,
        old=".clamp(min=-1.0, max=0.0)",
        new=".clamp(min=-1.0)",
    ),
]
