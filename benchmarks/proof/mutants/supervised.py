"""Cross-entropy as the trainer takes it."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/engines/test_supervised.py"
FILE = "stages/engines/supervised.py"

MUTANTS = [
    Mutant(
        name="the sign of the log-prob",
        file=FILE,
        old="nll_BT = -target",
        new="nll_BT = target",
    ),
    Mutant(
        name="inputs predicted instead of targets",
        file=FILE,
        old="micro.target_BT",
        new="micro.input_BT",
    ),
    Mutant(
        name="the prompt's positions in the sum",
        file=FILE,
        old="share = aggregate(nll_BT, micro.mask_BT,",
        new="share = aggregate(nll_BT + 1, micro.attention_BT,",
    ),
    Mutant(
        name="the micro-batch's own denominator",
        file=FILE,
        old="TokenMean(), counts)",
        new="TokenMean(), BatchCounts.of(micro.mask_BT))",
    ),
    Mutant(
        name="the denominator is the sequences'",
        file=FILE,
        old="tokens=batch.target_count",
        new="tokens=len(batch.rows_B)",
    ),
    Mutant(
        name="the denominator counts padding",
        file=FILE,
        old="tokens=batch.target_count",
        new="tokens=batch.mask_BT.numel()",
    ),
    Mutant(
        name="shares are not kept",
        file=FILE,
        old="        shares.append(float(share.detach()))\n",
        new="",
    ),
    Mutant(
        name="the gradient is cut",
        file=FILE,
        old="return share",
        new="return share.detach().requires_grad_()",
    ),
]
