"""A corrupted query is another query, repeats with its seed, and is mostly wrong."""

import random

import pytest

from stages.domains.protocol import Split
from stages.domains.sql.corruption import SLIPS, corrupt
from stages.domains.sql.domain import SqlDomain

QUERY = (
    "select t.name from track t join genre g on g.id = t.genre_id "
    "where g.name = 'Rock' order by t.milliseconds desc limit 1"
)


@pytest.fixture(scope="module")
def answers(domain: SqlDomain):
    """(prompt, right query) of every family and idiom, one prompt in nine."""
    return [
        (prompt, query)
        for prompt in domain.prompts(Split.TRAIN)[::9]
        for queries in domain.strategies(prompt).values()
        for query in queries
    ]


def test_the_generator_alone_decides():
    for seed in range(50):
        assert corrupt(QUERY, random.Random(seed)) == corrupt(QUERY, random.Random(seed))
    assert len({corrupt(QUERY, random.Random(seed)) for seed in range(50)}) > 10


def test_every_right_answer_can_be_corrupted_and_is_changed(answers):
    rng = random.Random(0)
    assert len(answers) > 100
    assert all(corrupt(query, rng) != query for _, query in answers)


def test_each_slip_changes_a_query_that_it_fits():
    aggregate = "select count(*) from track t where t.genre_id in (select g.id from genre g)"
    for slip in SLIPS:
        changed = {slip(query, random.Random(seed)) for query in (QUERY, aggregate) for seed in range(20)}
        assert changed - {None, QUERY, aggregate}, slip.__name__


def test_a_slip_that_does_not_fit_leaves_the_query_to_another():
    assert all(slip("select 1", random.Random(0)) is None for slip in SLIPS)


def test_the_corrupted_are_mostly_wrong(domain: SqlDomain, answers):
    rng = random.Random(1)
    sample = rng.sample(answers, 100)
    verdicts = domain.verify([prompt for prompt, _ in sample], [corrupt(query, rng) for _, query in sample])
    assert all(verdict.unscorable is None for verdict in verdicts)
    assert sum(verdict.reward == 0.0 for verdict in verdicts) >= 90
