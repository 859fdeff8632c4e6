"""The held-out score is a mean over prompts of right shares, over verdicts only."""

import statistics

import pytest

from data_contracts.values import StopReason
from stages.domains.pool import Judgement
from stages.domains.prompt_table import PromptRow
from stages.domains.protocol import Prompt, Split, Unscorable, Verdict
from stages.engines.params import Sampling
from stages.engines.protocol import Rollout
from stages.errors import GuardError
from stages.opd.validation import score
from stages.sampling.judged import Judged

ROW = PromptRow(Prompt("p", "letters", "c", "say mo", {}, Split.VALIDATION, "open"), [], "", 1)
RIGHT, WRONG, NONE = Verdict(reward=1.0), Verdict(reward=0.0), Verdict(unscorable=Unscorable.WALL_CLOCK)


def group(*verdicts: Verdict) -> list[Judged]:
    rollout = Rollout(0, [7], [-1.0], StopReason.EOS, 0, 0, Sampling())
    return [Judged(ROW, [2], i, rollout, "", Judgement(verdict, None)) for i, verdict in enumerate(verdicts)]


def test_mean_and_standard_error_over_prompts():
    found = score(8, [group(RIGHT, WRONG), group(RIGHT, RIGHT), group(WRONG, WRONG)])
    shares = [0.5, 1.0, 0.0]
    assert (found.step, found.score, found.unscorable) == (8, statistics.fmean(shares), 0)
    assert found.standard_error == pytest.approx(statistics.stdev(shares) / 3**0.5)
    assert found.zero_variance == pytest.approx(2 / 3)
    assert found.surprise == 1.0  # every token here has log-prob -1


def test_unscorable_samples_leave_numerator_and_denominator():
    found = score(0, [group(RIGHT, NONE, NONE), group(WRONG, RIGHT, NONE), group(NONE, NONE, NONE)])
    assert found.score == 0.75  # the third prompt is no prompt, not one with 0
    assert found.unscorable == 6
    assert found == score(0, [group(RIGHT, NONE), group(NONE, WRONG, RIGHT), group(*[NONE] * 4)])


def test_without_two_prompts_with_a_verdict_nothing_can_be_judged():
    with pytest.raises(GuardError, match="fewer than two"):
        score(0, [group(RIGHT, WRONG), group(NONE)])
