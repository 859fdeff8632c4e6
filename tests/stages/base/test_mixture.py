"""The mixture has the shares that its parameters state, and is drawn from the given generator alone."""

import random
from collections import Counter
from pathlib import Path

import pytest
from letters_domain import FORMS, NAMES, Letters

from stages.base.mixture import draw
from stages.base.params import Mixture
from stages.domains.protocol import Prompt, Split

COUNT = 8000
MIXTURE = Mixture(random_slot_share=0.5, wrong_share=0.3, strategy_skew=0.6, second_reading_share=0.4)
# of a name that no random slot has, so that a replaced one is seen
PROMPT = Prompt(
    "p", "letters", "c", "say zu", {"value": "zu", "ambiguous": True, "rule": ""}, Split.TRAIN, "open"
)
RIGHT = {
    form.format(word): (name, word.isupper())
    for name, form in FORMS.items()
    for value in (*NAMES, "zu")
    for word in (value, value.upper())
}


def drawn(mixture: Mixture, prompt: Prompt = PROMPT, count: int = COUNT, seed: int = 0):
    rng = random.Random(seed)
    return [draw(Letters(Path()), prompt, mixture, rng) for _ in range(count)]


def near(share: float, expected: float, count: int = COUNT) -> bool:
    """Within four standard errors."""
    return abs(share - expected) < 4 * (expected * (1 - expected) / count) ** 0.5 + 1e-12


def test_shares_of_random_slots_and_wrong_answers():
    rows = drawn(MIXTURE)
    assert near(sum(row.text != PROMPT.text for row in rows) / COUNT, 0.5)
    assert near(sum(row.answer not in RIGHT for row in rows) / COUNT, 0.3)


def test_strategies_are_skewed_and_second_readings_rarer():
    right = [row for row in drawn(MIXTURE) if row.answer in RIGHT]
    forms = Counter(RIGHT[row.answer][0] for row in right)
    for rank, name in enumerate(FORMS):
        assert near(forms[name] / len(right), 0.6**rank / (1 + 0.6 + 0.36), len(right))
    assert near(sum(RIGHT[row.answer][1] for row in right) / len(right), 0.4, len(right))


def test_answer_and_question_get_the_same_random_name():
    for row in drawn(MIXTURE, count=500):
        if row.answer in RIGHT:
            assert row.text.removeprefix("say ") in row.answer.lower()


def test_a_prompt_of_one_reading_shows_that_one():
    prompt = Prompt(**{**vars(PROMPT), "payload": {**PROMPT.payload, "ambiguous": False}})
    assert not any(row.answer.isupper() for row in drawn(MIXTURE, prompt, count=500))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_clean_and_fully_random_mixtures(share):
    rows = drawn(Mixture(random_slot_share=share, wrong_share=0.0), count=300)
    assert all(row.answer in RIGHT for row in rows)
    assert {row.text == PROMPT.text for row in rows} == {share == 0.0}


def test_the_generator_decides():
    assert drawn(MIXTURE, count=50) == drawn(MIXTURE, count=50)
    assert drawn(MIXTURE, count=50) != drawn(MIXTURE, count=50, seed=1)
