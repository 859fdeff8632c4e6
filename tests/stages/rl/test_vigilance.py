"""Whether anything can be learnt, and whether width is lost."""

import json
from dataclasses import asdict, replace

import pytest

from stages.engines.params import Sampling
from stages.errors import GuardError
from stages.estimators.advantages import dr_grpo
from stages.rl.params import PreflightParams
from stages.rl.vigilance import WINDOW, StepCounts, WidthAlarm, count, preflight
from stages.sampling.judged import rewards_PG

FINE = StepCounts(0.4, 2.0, zero_variance=0.2, truncated=0.1, unscorable=0, mean_length=9.0)
LIMITS = PreflightParams(max_truncated=0.9, max_zero_variance=0.98)


def test_counts_are_those_of_the_groups(sample, train_rows):
    groups = sample(train_rows, 8, Sampling(max_new_tokens=4), seed=1)
    found = count(groups, dr_grpo(*rewards_PG(groups)).informative_P.tolist())
    samples = [s for group in groups for s in group]
    verdicts = [s.judgement.verdict for s in samples]
    scored = [v.reward for v in verdicts if v.unscorable is None]
    assert found.unscorable == len(samples) - len(scored) > 0
    assert found.pass_rate == pytest.approx(sum(scored) / len(scored))
    strategies = [{s.judgement.signature for s in g if s.judgement.verdict.reward == 1} for g in groups]
    assert found.distinct_correct == pytest.approx(sum(map(len, strategies)) / len(groups))
    mixed = [len({s.judgement.verdict.reward for s in g if s.scorable}) > 1 for g in groups]
    assert found.zero_variance == pytest.approx(1 - sum(mixed) / len(groups))
    assert found.truncated == pytest.approx(sum(s.truncated for s in samples) / len(samples))
    assert found.mean_length == pytest.approx(
        sum(len(s.rollout.completion_ids) for s in samples) / len(samples)
    )


def test_preflight_lets_pass_what_can_be_learnt_from():
    preflight(FINE, LIMITS)
    preflight(replace(FINE, truncated=0.9, zero_variance=0.98), LIMITS)


def test_preflight_names_the_number():
    with pytest.raises(GuardError, match=r"97% of the first rollouts.*max_new_tokens"):
        preflight(replace(FINE, truncated=0.97), LIMITS)
    with pytest.raises(GuardError, match=r"100% of the first groups.*pass rate 0\.00"):
        preflight(replace(FINE, zero_variance=1.0, pass_rate=0.0), LIMITS)


def raised(pass_rates, distinct):
    alarm, steps = WidthAlarm(), []
    for step, (rate, width) in enumerate(zip(pass_rates, distinct, strict=True), start=1):
        if alarm.update(step, replace(FINE, pass_rate=rate, distinct_correct=width)):
            steps.append(step)
    assert alarm.raised_at == (steps[0] if steps else None)
    return steps


def line(first, last, count=40):
    return [first + (last - first) * i / (count - 1) for i in range(count)]


def test_the_alarm_is_raised_when_distinct_falls_while_reward_rises():
    steps = raised(line(0.3, 0.9), line(3.0, 1.0))
    assert steps and steps == list(range(steps[0], 41))
    assert steps[0] >= 2 * WINDOW


@pytest.mark.parametrize(
    ("pass_rates", "distinct"),
    [
        (line(0.3, 0.9), line(3.0, 3.0)),  # reward alone
        (line(0.3, 0.9), line(2.0, 3.0)),  # both rise
        (line(0.5, 0.5), line(3.0, 1.0)),  # width alone: the model gets worse, that is another sign
        (line(0.9, 0.3), line(3.0, 1.0)),  # both fall
        (line(0.3, 0.9, 19), line(3.0, 0.5, 19)),  # not two windows yet
    ],
)
def test_the_alarm_is_not_raised_otherwise(pass_rates, distinct):
    assert raised(pass_rates, distinct) == []


def test_the_alarm_goes_on_after_a_resume_as_if_nothing_had_been():
    rates, widths = line(0.3, 0.9), line(3.0, 1.0)
    whole, resumed = WidthAlarm(), WidthAlarm()
    for step, (rate, width) in enumerate(zip(rates, widths, strict=True), start=1):
        counts = replace(FINE, pass_rate=rate, distinct_correct=width)
        resumed = WidthAlarm(**json.loads(json.dumps(asdict(resumed))))
        assert resumed.update(step, counts) == whole.update(step, counts)
    assert resumed == whole and whole.raised_at is not None
