"""Wrong versions of `stages/estimators/credit.py`."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_credit.py"

_FILE = "stages/estimators/credit.py"

MUTANTS = [
    Mutant(
        name="criteria that do not apply in the rubric's denominator as one",
        file=_FILE,
        old="    return (passed - failed).double() / (passed + failed).clamp(min=1)",
        new="    return (passed - failed).double() / (passed + failed + 1)",
    ),
    Mutant(
        name="the rubric's reward in [0, 1]",
        file=_FILE,
        old="    return (passed - failed).double() / (passed + failed).clamp(min=1)",
        new="    return passed.double() / (passed + failed).clamp(min=1)",
    ),
    Mutant(
        name="an uncited step has quality 0",
        file=_FILE,
        old="share_RS.where(cited_RS, mean_R1).where(tokens_RS > 0, 0.0)",
        new="share_RS.where(tokens_RS > 0, 0.0)",
    ),
    Mutant(
        name="the mean of cited qualities over all steps",
        file=_FILE,
        old="/ cited_RS.sum(1, keepdim=True).clamp(min=1)",
        new="/ (tokens_RS > 0).sum(1, keepdim=True)",
    ),
    Mutant(
        name="a loser's steps weighted by quality too",
        file=_FILE,
        old="quality_RS.where(advantage_R1 >= 0, 1 - quality_RS)",
        new="quality_RS",
    ),
    Mutant(
        name="winners and losers swapped",
        file=_FILE,
        old="quality_RS.where(advantage_R1 >= 0, 1 - quality_RS)",
        new="quality_RS.where(advantage_R1 < 0, 1 - quality_RS)",
    ),
    Mutant(
        name="steps that do not exist take a share of the blame",
        file=_FILE,
        old="1 - quality_RS).where(tokens_RS > 0, 0.0)",
        new="1 - quality_RS)",
    ),
    Mutant(
        name="the fallback by equal steps and not by equal tokens",
        file=_FILE,
        old="factor_RS.where(moved_R[:, None], (tokens_RS > 0).double())",
        new="factor_RS.where(moved_R[:, None], tokens_RS.sum(1, keepdim=True) / "
        "(tokens_RS.clamp(min=1) * (tokens_RS > 0).sum(1, keepdim=True)) * (tokens_RS > 0))",
    ),
    Mutant(
        name="no fallback without weight: a trajectory's advantage is lost",
        file=_FILE,
        old="    moved_R = cited_R & (weight_RS > 0).any(1)",
        new="    moved_R = cited_R",
    ),
    Mutant(
        name="fallbacks not told apart",
        file=_FILE,
        old="Fallback.NO_WEIGHT if cited else Fallback.NO_CITATION",
        new="Fallback.NO_CITATION",
    ),
    Mutant(
        name="the length of a step not divided out",
        file=_FILE,
        old="factor_RS = scale_R1 * weight_RS / length_RS",
        new="factor_RS = scale_R1 * weight_RS",
    ),
    Mutant(
        name="the plain sum conserved instead of the token-weighted one",
        file=_FILE,
        old="    total_R1 = tokens_RS.sum(1, keepdim=True)",
        new="    total_R1 = (tokens_RS > 0).sum(1, keepdim=True).double()",
    ),
    Mutant(
        name="the cap without renormalisation",
        file=_FILE,
        old="        held_RS = held_RS | over_RS",
        new="        held_RS = held_RS | over_RS\n        break",
    ),
    Mutant(
        name="one round of renormalisation only",
        file=_FILE,
        old="        held_RS = held_RS | over_RS",
        new="        if held_RS.any():\n            break\n        held_RS = held_RS | over_RS",
    ),
    Mutant(
        name="what the cap leaves over is lost",
        file=_FILE,
        old="even_R1 * (weightless_RS > 0)",
        new="0.0 * even_R1 * (weightless_RS > 0)",
    ),
    Mutant(
        name="spilled trajectories not counted",
        file=_FILE,
        old="held_RS, full_R1.squeeze(1)",
        new="held_RS, full_R1.squeeze(1) & False",
    ),
    Mutant(
        name="held steps not counted",
        file=_FILE,
        old="        amplified=int(held_RS.sum()),",
        new="        amplified=0,",
    ),
    Mutant(
        name="conservation not checked at run time",
        file=_FILE,
        old="    require_conserved(advantage_R, tokens_RS, advantages_RS)\n",
        new="",
    ),
    Mutant(
        name="the check of the sum lets NaN through",
        file=_FILE,
        old="    if not (lost_R <= ROUNDING * whole_R.abs()).all():",
        new="    if (lost_R > ROUNDING * whole_R.abs()).any():",
    ),
    Mutant(
        name="the check of the sign always passes",
        file=_FILE,
        old="    if against_RS.any():",
        new="    if against_RS.ndim == 0:",
    ),
    Mutant(
        name="citations of the environment's steps let through",
        file=_FILE,
        old="    if ((passed_RS + failed_RS)[tokens_RS == 0] > 0).any():",
        new="    if tokens_RS.ndim == 0:",
    ),
]
