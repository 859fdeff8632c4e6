"""A signature that is a function of the answer is noticed before an archive is built on it."""

import pytest

from data_contracts.values import StopReason
from stages.archive.granularity import Granularity
from stages.domains.pool import Judgement
from stages.domains.prompt_table import PromptRow
from stages.domains.protocol import Prompt, Split, Verdict
from stages.engines.params import Sampling
from stages.engines.protocol import Rollout
from stages.errors import GuardError
from stages.sampling.judged import Judged

ROW = PromptRow(Prompt("p", "toy", "family", "question", {}, Split.TRAIN, "open"), [], "", 1)


def told(text: str, signature: str, reading: str = "a") -> Judged:
    rollout = Rollout(0, [5, 1], [-1.0, -1.0], StopReason.EOS, 0, 0, Sampling())
    return Judged(ROW, [2, 3], 0, rollout, text, Judgement(Verdict(reward=1.0, reading=reading), signature))


def test_a_signature_that_sees_the_answer_only_is_refused() -> None:
    """Twenty times two spellings of one reading: all under one signature, or now and then under two."""
    one, two = Granularity(), Granularity()
    for number in range(20):
        alike = [told("mo", "sig"), told("mo mo", "sig")]
        one.add(alike)
        two.add(alike if number else [told("mo", "sig"), told("mo mo", "other")])
    with pytest.raises(GuardError, match=r"20 times .* sees the answer only"):
        one.require()
    two.require()
    few = Granularity()
    few.add([told("mo", "sig"), told("mo mo", "sig")])
    few.require()  # too few to judge
    unlike = Granularity()  # other readings have other signatures by right
    for _ in range(20):
        unlike.add([told("mo", "a", "first"), told("so", "b", "second")])
    unlike.require()
