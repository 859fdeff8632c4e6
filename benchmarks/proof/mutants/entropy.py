"""Entropy of the next-token distribution."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_entropy.py"
FILE = "stages/estimators/entropy.py"

MUTANTS = [
    Mutant(
        name="probability 0 times log 0",
        file=FILE,
        old="logp_NV.clamp(min=torch.finfo(logp_NV.dtype).min)",
        new="logp_NV",
    ),
    Mutant(
        name="negative entropy",
        file=FILE,
        old="(-(logp_NV.exp()",
        new="((logp_NV.exp()",
    ),
    Mutant(
        name="temperature forgotten",
        file=FILE,
        old="scaled(logits_NV, scale, places_N).log_softmax",
        new="logits_NV.log_softmax",
    ),
    Mutant(
        name="mean over the vocabulary",
        file=FILE,
        old=".min)).sum(-1),)",
        new=".min)).mean(-1),)",
    ),
    Mutant(
        name="logits not normalised",
        file=FILE,
        old=".log_softmax(-1)",
        new="",
    ),
    Mutant(
        name="surprise instead of entropy",
        file=FILE,
        old="(-(logp_NV.exp() * logp_NV",
        new="(-(logp_NV.softmax(-1).detach() * logp_NV",
    ),
    Mutant(
        name="masked positions are read",
        file=FILE,
        old="return at_positions(function, logits_BTV, mask_BT)[0]",
        new="return at_positions(function, logits_BTV, torch.ones_like(mask_BT))[0]",
    ),
]
