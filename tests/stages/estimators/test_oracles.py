"""Every identity that a correct implementation satisfies has a test that says which one it proves."""

import ast
from pathlib import Path

ORACLES = {
    # 1: EliteReplay
    "1.1": "one correct strategy: distinct@k is pass@k; monotone in k; both <= min of the readings <= either",
    "1.2": "alias, whitespace and case leave the signature; another column or plan changes it",
    "1.3": "lambda = 0 is GRPO bit for bit, and so is an archive of size 0",
    "1.4": "gradient of replay on a tabular softmax is lambda (uniform over elites - policy)",
    "1.5": "replay leaves group statistics and ratio metrics alone",
    "1.6": "the archive is deterministic given its seed; a model with RL behind it raises",
    # 3: score centering
    "3.1": "constant reward: expected centred gradient 0 for every regulariser (a head: its tail bound)",
    "3.2": "+100: raw moves, baseline, centering and both do not; the group mean not even per sample",
    "3.3": "prefix shift: later positions do not move with centering, and move without",
    "3.4": "sampler = policy: the centred gradient is REINFORCE's",
    "3.5": "one token, or sequence level: centering on and off are the same per sample",
    "3.6": "group mean: (1 - 1/G) x covariance in expectation; leave-one-out: 1 x",
    "3.7": "autograd of the surrogate is A (w s - m), and no path leads to w",
    "3.8": "a head of the whole vocabulary is the dense result; its residual falls with k on average",
    "3.9": "permuting vocabulary ids changes nothing; masked positions contribute exactly 0",
    # 4: SIGNBALANCE
    "4.1": "the sign of an advantage is the verdict's, or 0",
    "4.2": "a group sums to 0 when both verdicts are there",
    "4.3": "positive and negative magnitudes have the same sum",
    "4.4": "a right sample has magnitude c in every composition",
    "4.5": "collinear with reward - mean",
    "4.6": "15 right of 16: the wrong one has -15",
    "4.7": "expected prompt weight omega(p) by binomial enumeration",
    "4.8": "the batch reading sums to 0 over the batch",
    "4.9": "c scales the loss",
    "4.10": "permutation equivariance",
    "4.11": "flipping rewards does not negate the advantages; GRPO's it does",
    # 5: DRACO
    "5.1": "sum of n_j a_j is A N",
    "5.2": "the sign of a step's advantage is the trajectory's, or 0",
    "5.3": "scale equivariance; a step's share does not depend on its length",
    "5.4": "worked examples",
    "5.5": "winner and loser are symmetric",
    "5.6": "equal qualities are not plain GRPO, no citation is",
    "5.7": "the group's token-weighted sum is GRPO's",
    "5.8": "one more cited pass never lowers that step's share for a winner",
    # 6: OPD, then RL
    "6.1": "teacher = student: gradient 0",
    "6.2": "the expectation of each estimator",
    "6.3": "after the switch the advantage is exactly the group's, and the teacher is not called",
    "6.4": "the plateau detector fires on a saturating curve and never on a linear one",
    "6.5": "no distillation is GRPO bit for bit, distillation without a plateau is OPD",
    "6.6": "resumed across the switch equals undisturbed",
    # 9: the production layer
    "9.1": "identical weights: ratio 1 exactly, KL 0, clip fraction 0",
    "9.2": "sequence ratio is exp(sum), geometric is exp(mean)",
    "9.3": "truncated at most U, masked supported in [L, U], clipped within [L, U]",
    "9.4": "batch-normalised weights have mean 1",
    "9.5": "the veto kills exactly the sequences with a ratio below the threshold",
    "9.6": "k3 >= 0",
    "9.7": "effective sample size in (0, 1]",
    "9.8": "the staleness filter returns only allowed versions",
    "9.9": "an MX scale is a power of two; quantising twice is once, and exact on representable values",
    "9.10": "recorded routes are replayed bit for bit",
    "9.11": "killed or stopped at any step: the same curve",
}
TESTS = Path(__file__).parents[2]


def marked() -> dict[str, list[str]]:
    """Oracle -> files, read from the marks, so that a test that is not selected counts too."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.oracle":
                (number,) = (ast.literal_eval(argument) for argument in node.args)
                found.setdefault(number, []).append(str(file.relative_to(TESTS)))
    return found


def test_every_oracle_has_a_test_that_is_marked_with_it():
    found = marked()
    assert sorted(ORACLES.keys() - found.keys()) == []
    assert sorted(found.keys() - ORACLES.keys()) == [], "a mark that names no oracle"
