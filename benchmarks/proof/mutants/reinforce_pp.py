"""Wrong versions of batch-normalised advantages."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/advantages/test_batch.py"

_FILE = "stages/estimators/advantages/batch.py"

MUTANTS = [
    Mutant(
        name="the batch mean counts unscorable samples as zeros",
        file=_FILE,
        old="scored_N.mean()",
        new="scored_N.sum() / rewards_PG.numel()",
    ),
    Mutant(
        name="the batch std replaced by the group's",
        file=_FILE,
        old="    largest = centred_PG.abs().max()",
        new="    of_group_P1 = centred_PG.square().sum(1, keepdim=True) / scorable_PG.sum(1, keepdim=True)\n"
        "    return of_group_P1.sqrt()\n"
        "    largest = centred_PG.abs().max()",
    ),
    Mutant(
        name="the batch std over all samples, unscorable ones too",
        file=_FILE,
        old="/ scorable_PG.sum()).sqrt()",
        new="/ scorable_PG.numel()).sqrt()",
    ),
    Mutant(
        name="the batch std over informative groups only",
        file=_FILE,
        old="    return Advantages(centred_PG / _std(centred_PG, scorable_PG), informative_P)\n\n\ndef _std",
        new="    return Advantages(centred_PG / _std(centred_PG, scorable_PG & informative_P[:, None]), "
        "informative_P)\n\n\ndef _std",
    ),
    Mutant(
        name="a group without a verdict counted as informative",
        file=_FILE,
        old="scorable_PG.any(1) & varied",
        new="(scorable_PG | True).any(1) & varied",
    ),
]
