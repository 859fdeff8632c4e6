"""Slot values: held out as strings, and never shown by a random slot."""

import random
import re
from pathlib import Path

import pytest

from stages.domains.protocol import Split
from stages.domains.sql.domain import SqlDomain
from stages.domains.sql.families import NUMERIC
from stages.domains.sql.slots import MOST_CHARS, SOURCES, RandomSlots, real_values, split_of


@pytest.fixture(scope="module")
def values(sql_folder: Path) -> dict[str, list[str]]:
    return real_values(sql_folder)


def test_every_slot_has_values_of_every_split(values):
    assert values.keys() == SOURCES.keys()
    for slot, found in values.items():
        assert len(found) == len(set(found)) <= SOURCES[slot][1]
        assert {Split.TRAIN, Split.TEST_VALUES} <= {split_of(value) for value in found}, slot
        assert all(0 < len(value) <= MOST_CHARS and "'" not in value for value in found)


def test_a_value_has_one_split_whatever_its_case_and_slot():
    for value in ("Audioslave", "Rock", "42"):
        assert split_of(value) == split_of(value.upper()) == split_of(value.lower())


def test_random_slots_never_equal_a_held_out_value(values):
    held_out = {
        value.casefold()
        for found in values.values()
        for value in found
        if split_of(value) is not Split.PRETRAIN
    }
    names = [value for found in values.values() for value in found if split_of(value) is Split.PRETRAIN]
    slots, rng = RandomSlots(names), random.Random(0)
    drawn = {slots.text(rng) for _ in range(5_000)} | {slots.number(rng) for _ in range(2_000)}
    assert len(held_out) > 50 and len(drawn) > 2_000
    assert not {text.casefold() for text in drawn} & held_out
    assert {split_of(text) for text in drawn} == {Split.PRETRAIN}


def test_random_slots_repeat_with_their_generator_and_fit_into_quotes(values):
    slots = RandomSlots(values["artist"])
    first = [slots.text(random.Random(seed)) for seed in range(300)]
    assert first == [slots.text(random.Random(seed)) for seed in range(300)]
    assert len(set(first)) > 200
    assert all(text.strip() == text and "'" not in text for text in first)
    numbers = {slots.number(random.Random(seed)) for seed in range(300)}
    assert all(number.isdigit() for number in numbers)


def test_a_randomised_prompt_and_its_answers_show_the_same_new_value(domain: SqlDomain):
    rng = random.Random(0)
    for prompt in domain.prompts(Split.TRAIN)[::11]:
        queries = [query for queries in domain.strategies(prompt).values() for query in queries]
        text, changed = domain.randomise_slot(prompt, queries, rng)
        pattern = r"\d+" if prompt.payload["slot"] in NUMERIC else r"'[^']*'"
        *_, new = re.findall(pattern, text)
        *_, old = re.findall(pattern, prompt.text)
        assert old.strip("'") == prompt.payload["value"] != new.strip("'")
        assert text == prompt.text.replace(old, new)
        assert len(changed) == len(queries)
        assert all(new in query and old not in re.findall(pattern, query) for query in changed)
