"""Wrong versions of `stages/estimators/answer_class.py`."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_answer_class.py"

_FILE = "stages/estimators/answer_class.py"

MUTANTS = [
    Mutant(
        name="the flag must be exceeded and not only reached",
        file=_FILE,
        old="self.guess_rate >= BOUNDED_GUESS_RATE",
        new="self.guess_rate > BOUNDED_GUESS_RATE",
    ),
    Mutant(
        name="the guess rate of open answers is 1",
        file=_FILE,
        old="1 / possible if possible else 0.0",
        new="1 / (possible or 1)",
    ),
    Mutant(
        name="the constant answer's accuracy over the prompts of all classes",
        file=_FILE,
        old="fmean(verdicts[p] for p in places)",
        new="fmean(verdicts)",
    ),
    Mutant(
        name="the accuracy of the first candidate and not of the best",
        file=_FILE,
        old="max(solved, key=solved.__getitem__, default=None)",
        new="next(iter(solved), None)",
    ),
    Mutant(
        name="an unscorable sample is a reward of 0",
        file=_FILE,
        old="[[reward for reward in rewards[p] if reward is not None] for p in places]",
        new="[[reward or 0.0 for reward in rewards[p]] for p in places]",
    ),
    Mutant(
        name="groups without a verdict in the denominators",
        file=_FILE,
        old="    groups = [group for group in scored if group]",
        new="    groups = scored",
    ),
    Mutant(
        name="a sample alone in its group counted as a lone right one",
        file=_FILE,
        old="group.count(RIGHT) == 1 < len(group)",
        new="group.count(RIGHT) == 1",
    ),
    Mutant(
        name="all-right groups only have no variance",
        file=_FILE,
        old="len(set(group)) == 1",
        new="set(group) == {RIGHT}",
    ),
    Mutant(
        name="the sample's std instead of the population's",
        file=_FILE,
        old="from statistics import fmean, pstdev",
        new="from statistics import fmean\nfrom statistics import stdev as pstdev",
    ),
    Mutant(
        name="a share of classes instead of prompts refused",
        file=_FILE,
        old="sum(found.prompts for found in bounded) / max(sum(found.prompts for found in audits), 1)",
        new="len(bounded) / max(len(audits), 1)",
    ),
    Mutant(
        name="an acknowledgement ignored",
        file=_FILE,
        old="    if acknowledged or share <= BOUNDED_SHARE:",
        new="    if share <= BOUNDED_SHARE:",
    ),
    Mutant(
        name="a tenth of the prompts refused already",
        file=_FILE,
        old="share <= BOUNDED_SHARE",
        new="share < BOUNDED_SHARE",
    ),
    Mutant(
        name="a class that only begins like the convention accepted",
        file=_FILE,
        old="_BOUNDED.fullmatch(answer_class)",
        new="_BOUNDED.match(answer_class)",
    ),
    Mutant(
        name="a class of one possible answer accepted",
        file=_FILE,
        old=" or int(found[1]) < 2",
        new="",
    ),
]
