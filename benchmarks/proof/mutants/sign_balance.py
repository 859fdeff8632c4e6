"""Wrong versions of SIGNBALANCE."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/advantages/test_sign_balance.py"

_FILE = "stages/estimators/advantages/sign_balance.py"

MUTANTS = [
    Mutant(
        name="the ratio upside down",
        file=_FILE,
        old="(right_P1.to(rewards_PG) / wrong_P1.clamp(min=1))",
        new="(wrong_P1.to(rewards_PG) / right_P1.clamp(min=1))",
    ),
    Mutant(
        name="the square root of the ratio, as in GRPO",
        file=_FILE,
        old=".where(wrong_P1 > 0, 0.0)",
        new=".where(wrong_P1 > 0, 0.0).sqrt()",
    ),
    Mutant(
        name="an all-correct group has +1 by default",
        file=_FILE,
        old="1.0 if all_correct is AllCorrect.PAPER else 0.0",
        new="1.0",
    ),
    Mutant(
        name="an all-correct group never has +1",
        file=_FILE,
        old="1.0 if all_correct is AllCorrect.PAPER else 0.0",
        new="0.0",
    ),
    Mutant(
        name="batch scope counts the group",
        file=_FILE,
        old="    if scope is Scope.BATCH:",
        new="    if scope is None:",
    ),
    Mutant(
        name="unscorable samples counted as wrong",
        file=_FILE,
        old="    wrong_PG = scorable_PG & ~right_PG",
        new="    wrong_PG = ~right_PG",
    ),
    Mutant(
        name="the clamp not applied",
        file=_FILE,
        old="ratio_P1 if rho_max is None else ratio_P1.clamp(max=rho_max)",
        new="ratio_P1",
    ),
    Mutant(
        name="the clamp counts ratios that are at it",
        file=_FILE,
        old="int((rho_P1 < ratio_P1).sum())",
        new="int((ratio_P1 >= (rho_max or float('inf'))).sum())",
    ),
    Mutant(
        name="rewards of three values let through",
        file=_FILE,
        old="len(others) > 1 or not",
        new="not",
    ),
    Mutant(
        name="a shaped reward let through",
        file=_FILE,
        old="len(others) > 1 or not set(others) <= set(WRONG)",
        new="len(others) > 1",
    ),
    Mutant(
        name="informative by the verdicts and not by the advantages",
        file=_FILE,
        old="(values_PG != 0).any(1)",
        new="scorable_PG.any(1)",
    ),
]
