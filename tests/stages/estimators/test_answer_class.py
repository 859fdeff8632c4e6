"""The audit of answer classes, against counts by hand; and what refuses vanilla GRPO."""

import subprocess
import sys
from statistics import pstdev

import pytest

from stages.errors import GuardError
from stages.estimators.answer_class import (
    BOUNDED_GUESS_RATE,
    AnswerClassAudit,
    audit,
    refuse_vanilla_grpo,
    surface,
)


@pytest.mark.parametrize(
    "answer_class, answers", [("open", None), ("yes_no:2", 2), ("options:4", 4), ("digits_3:1000", 1000)]
)
def test_the_number_of_possible_answers_is_in_the_name(answer_class, answers):
    assert surface(answer_class) == answers


@pytest.mark.parametrize(
    "answer_class",
    [
        "",
        "yes_no",
        "open:3.5",
        ":2",
        "yes_no:",
        "yes_no:0",
        "yes_no:1",
        "yes_no:02",
        "yes_no:-2",
        "Open",
        "a:2\n",
    ],
)
def test_any_other_class_is_refused(answer_class):
    with pytest.raises(GuardError, match="such as 'yes_no:2': rename it"):
        surface(answer_class)


CLASSES = ["yes_no:2", "open", "yes_no:2", "yes_no:2", "open", "yes_no:2"]
REWARDS = [[1, 0, 0], [1, 0, None], [1, 1, 1], [0, 0, None], [None, None, None], [1, 1, 0]]
VERDICTS = {
    "yes": [True, False, False, True, False, True],
    "no": [False, False, True, False, False, False],
    "7": [False, True, False, False, False, False],
}


def test_each_class_by_hand():
    opened, bounded = audit(CLASSES, REWARDS, VERDICTS)
    assert bounded == AnswerClassAudit(
        answer_class="yes_no:2",
        prompts=4,
        guess_rate=0.5,
        constant_answer="yes",
        constant_accuracy=0.75,
        groups=4,
        unscorable_samples=1,
        reward_mean=pytest.approx(6 / 11),
        reward_std=pytest.approx(pstdev([1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0])),
        lone_right_share=0.25,
        zero_variance_share=0.5,
    )
    assert opened == AnswerClassAudit(
        answer_class="open",
        prompts=2,
        guess_rate=0.0,
        constant_answer="7",
        constant_accuracy=0.5,
        groups=1,
        unscorable_samples=4,
        reward_mean=0.5,
        reward_std=0.5,
        lone_right_share=1.0,
        zero_variance_share=0.0,
    )
    assert bounded.bounded and not opened.bounded


def test_a_sample_alone_in_its_group_is_not_a_lone_right_one():
    (found,) = audit(["open"], [[1.0, None]], {})
    assert (found.lone_right_share, found.zero_variance_share) == (0.0, 1.0)


def test_what_cannot_be_counted_is_none_not_zero():
    (found,) = audit(["options:4"], [[None, None]], {})
    assert (found.constant_answer, found.constant_accuracy) == (None, None)
    assert (found.reward_mean, found.reward_std) == (None, None)
    assert (found.lone_right_share, found.zero_variance_share) == (None, None)
    assert (found.groups, found.unscorable_samples, found.guess_rate) == (0, 2, 0.25)


def test_ties_of_constant_answers_go_to_the_first():
    (found,) = audit(["open"] * 2, [[1.0]] * 2, {"b": [True, False], "a": [False, True]})
    assert (found.constant_answer, found.constant_accuracy) == ("b", 0.5)


def test_refusals_of_the_audit():
    with pytest.raises(GuardError, match="no prompt"):
        audit([], [], {})
    for rewards, verdicts in (([[1.0]] * 2, {}), ([[1.0]], {"a": [True, False]})):
        with pytest.raises(GuardError, match="one verdict a candidate per prompt"):
            audit(["open"], rewards, verdicts)
    with pytest.raises(GuardError, match="rename it"):
        audit(["boolean"], [[1.0]], {})


def audits(*classes_and_prompts):
    names = [name for name, prompts in classes_and_prompts for _ in range(prompts)]
    return audit(names, [[1.0, 0.0]] * len(names), {})


def test_more_than_a_tenth_of_guessable_prompts_refuses_grpo_with_the_ways_out():
    with pytest.raises(GuardError) as refused:
        refuse_vanilla_grpo(audits(("open", 16), ("yes_no:2", 2), ("digits:100", 2)), acknowledged=False)
    sentence = str(refused.value)
    assert "20% of the prompts" in sentence
    assert "digits:100 (1.0%), yes_no:2 (50.0%)" in sentence and "open" not in sentence
    assert "advantage.kind to signbalance, dr_grpo or rloo" in sentence
    assert "advantage.acknowledge_guessing=true" in sentence
    assert "kl" not in sentence.lower().split()  # a stronger KL is no remedy (methods.md 4(c) 5)


def test_acknowledged_or_a_tenth_or_less_passes():
    half = audits(("open", 1), ("yes_no:2", 1))
    refuse_vanilla_grpo(half, acknowledged=True)
    refuse_vanilla_grpo(audits(("open", 9), ("yes_no:2", 1)), acknowledged=False)
    refuse_vanilla_grpo([], acknowledged=False)
    with pytest.raises(GuardError):
        refuse_vanilla_grpo(audits(("open", 89), ("yes_no:2", 11)), acknowledged=False)


def test_the_flag_is_the_papers_half_a_percent():
    assert BOUNDED_GUESS_RATE == 1 / 200
    refuse_vanilla_grpo(audits(("integers:201", 3)), acknowledged=False)
    with pytest.raises(GuardError, match=r"integers:200 \(0.5%\)"):
        refuse_vanilla_grpo(audits(("integers:200", 3)), acknowledged=False)


def test_the_audit_needs_no_torch():
    code = "import sys, stages.estimators.answer_class; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
