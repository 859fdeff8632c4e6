"""The question set as a whole: size, ambiguity, strategies, splits without leaks."""

import itertools
import random
import re
from collections import Counter, defaultdict

import pytest

from stages.domains.protocol import Prompt, Split
from stages.domains.sql.compare import same
from stages.domains.sql.domain import SqlDomain
from stages.domains.sql.families import FAMILIES
from stages.domains.sql.idioms import TEMPLATES


@pytest.fixture(scope="module")
def prompts(domain: SqlDomain) -> list[Prompt]:
    return [prompt for split in Split for prompt in domain.prompts(split)]


def one_of_each(prompts: list[Prompt], count: int) -> list[Prompt]:
    by_family = defaultdict(list)
    for prompt in prompts:
        by_family[prompt.capability].append(prompt)
    rng = random.Random(5)
    return [p for family in by_family.values() for p in rng.sample(family, min(count, len(family)))]


def test_there_are_enough_questions_families_and_ambiguities(
    domain: SqlDomain, prompts: list[Prompt]
) -> None:
    assert len(prompts) >= 1_000
    assert sum(len(domain.readings(p)) == 2 for p in prompts) >= len(prompts) / 4
    kinds = Counter(p.payload["ambiguity"] for p in prompts)
    assert all(kinds[kind] >= 40 for kind in "CTJP")
    sizes = {split: len(domain.prompts(split)) for split in Split}
    assert sizes[Split.VALIDATION] >= 100 and sizes[Split.TEST_VALUES] >= 100
    assert sizes[Split.TEST_COMPOSITIONS] >= 60
    assert len({p.capability for p in domain.prompts(Split.TRAIN)}) >= 20
    assert len({p.id for p in prompts}) == len(prompts) == len({p.text for p in prompts})


def test_questions_and_queries_are_short(domain: SqlDomain, prompts: list[Prompt]) -> None:
    assert max(len(p.text.split()) for p in prompts) <= 12
    queries = [q for p in prompts for qs in domain.strategies(p).values() for q in qs]
    assert max(len(q.split()) for q in queries) <= 45


def test_every_strategy_is_right_and_no_two_are_the_same(domain: SqlDomain, prompts: list[Prompt]) -> None:
    for prompt in one_of_each(prompts, 2):
        signatures = []
        strategies = domain.strategies(prompt)
        assert tuple(strategies) == domain.readings(prompt)
        for reading, queries in strategies.items():
            assert 3 <= len(queries) <= 8
            verdicts = domain.verify([prompt] * len(queries), queries)
            assert {(v.reward, v.reading) for v in verdicts} == {(1.0, reading)}, prompt.id
            signatures += [domain.signature(prompt, query) for query in queries]
        assert None not in signatures
        assert len(set(signatures)) == len(signatures), prompt.id


def test_readings_give_different_non_empty_rows_on_both_databases(
    domain: SqlDomain, prompts: list[Prompt]
) -> None:
    ambiguous = [p for p in prompts if len(domain.readings(p)) == 2]
    for prompt in ambiguous:
        a, b = (domain._verifier.reference(sql) for sql in prompt.payload["readings"].values())
        assert a is not None and b is not None
        for left, right in zip(a.results, b.results, strict=True):
            assert left and right and not same(left, right, ordered=False), prompt.id


def test_a_held_out_value_is_in_no_training_text(domain: SqlDomain) -> None:
    values = {
        split: {p.payload["value"].casefold() for p in domain.prompts(split)}
        for split in Split
        if split is not Split.TEST_COMPOSITIONS
    }
    for one, other in itertools.combinations(values.values(), 2):
        assert not one & other
    for split in (Split.TRAIN, Split.VALIDATION, Split.TEST_VALUES):  # pre-training shows none of these
        held_out = values[split]
        rng = random.Random(3)
        for prompt in domain.prompts(Split.PRETRAIN)[::3]:
            for _ in range(4):
                text, _ = domain.randomise_slot(prompt, [], rng)
                shown = re.search(r"'(.*)'|(\d+)$", text)
                assert shown is not None
                assert (shown[1] or shown[2]).casefold() not in held_out


def test_held_out_families_are_new_only_in_their_composition(domain: SqlDomain) -> None:
    train = domain.prompts(Split.PRETRAIN)
    compositions = domain.prompts(Split.TEST_COMPOSITIONS)
    trained, held_out = ({p.capability for p in prompts} for prompts in (train, compositions))
    assert len(held_out) >= 6 and not held_out & trained
    assert {name.split("/")[1] for name in held_out} <= {name.split("/")[1] for name in trained}
    operations = [
        {r.operation for f in FAMILIES if f.name in names for r in f.readings}
        for names in (held_out, trained)
    ]
    assert operations[0] <= operations[1]
    assert {p.payload["value"] for p in compositions} <= {p.payload["value"] for p in train}
    asked = [
        {word for p in prompts for word in p.text.split("'")[0].split()} for prompts in (compositions, train)
    ]
    assert asked[0] <= asked[1]
    pieces = [
        {
            piece
            for p in prompts
            for queries in domain.strategies(p).values()
            for q in queries
            for piece in q.split()
        }
        for prompts in (compositions, train)
    ]
    assert pieces[0] <= pieces[1]


def test_no_answer_is_one_that_any_query_would_give(domain: SqlDomain, prompts: list[Prompt]) -> None:
    for prompt in prompts:
        for sql in prompt.payload["readings"].values():
            reference = domain._verifier.reference(sql)
            assert reference is not None
            assert set(map(tuple, reference.results)) != {((1,),)}


def test_every_family_has_questions_and_every_operation_is_used(prompts: list[Prompt]) -> None:
    assert {family.name for family in FAMILIES} == {p.capability for p in prompts}
    assert {r.operation for family in FAMILIES for r in family.readings} == set(TEMPLATES)


def test_a_random_slot_replaces_the_value_everywhere_and_nothing_else(
    domain: SqlDomain, prompts: list[Prompt]
) -> None:
    rng = random.Random(0)
    for prompt in one_of_each(prompts, 3):
        queries = [q for qs in domain.strategies(prompt).values() for q in qs]
        text, changed = domain.randomise_slot(prompt, queries, rng)
        shown = re.search(r"'.*'|\d+$", text)
        assert shown is not None
        old = re.search(r"'.*'|\d+$", prompt.text)
        assert old is not None
        assert text == prompt.text.replace(old[0], shown[0])
        for before, after in zip(queries, changed, strict=True):
            parts = re.split(rf"= {re.escape(old[0])}(?= |$)", before)
            assert after == f"= {shown[0]}".join(parts)


def test_corruption_is_nearly_always_wrong_and_mostly_runs(domain: SqlDomain, prompts: list[Prompt]) -> None:
    rng = random.Random(0)
    wrong = runs = total = 0
    for prompt in one_of_each(prompts, 1):
        for queries in domain.strategies(prompt).values():
            for query in queries:
                broken = domain.corrupt(query, rng)
                assert broken != query
                total += 1
                wrong += domain.verify([prompt], [broken])[0].reward == 0.0
                runs += _runs(domain, broken)
    assert wrong / total > 0.95
    assert runs / total > 0.7


def _runs(domain: SqlDomain, sql: str) -> bool:
    from stages.domains.sql.sandbox import Refused

    try:
        domain._verifier.databases[0].query(sql, 5_000)
    except Refused:
        return False
    return True


def test_the_reference_is_one_fixed_right_query_of_either_reading(
    domain: SqlDomain, prompts: list[Prompt]
) -> None:
    chosen = Counter()
    for prompt in prompts:
        reference = domain.reference(prompt)
        assert reference == domain.reference(prompt)
        verdict = domain.verify([prompt], [reference])[0]
        assert verdict.reward == 1.0
        if len(domain.readings(prompt)) == 2:
            chosen[verdict.reading] += 1
    assert min(chosen.values()) > 0.3 * chosen.total()
