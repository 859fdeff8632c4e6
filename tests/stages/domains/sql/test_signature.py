"""What keeps a strategy's signature and what changes it (methods.md, EliteReplay)."""

import pytest

from stages.domains.protocol import Prompt, Split
from stages.domains.sql.domain import SqlDomain

JOIN = "select t.name from track t join genre g on t.genre_id = g.id where g.name = 'Jazz'"


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    readings = {
        "a": JOIN,
        "b": "select t.name from track t join style s on t.style_id = s.id where s.name = 'Jazz'",
    }
    return Prompt("signature", "sql", "test", "list jazz", {"readings": readings}, Split.TRAIN, "open")


@pytest.mark.oracle("1.2")
@pytest.mark.parametrize(
    "spelling",
    [
        "SELECT t.name FROM track t JOIN genre g ON t.genre_id = g.id WHERE g.name = 'Jazz'",
        "select   t.name\nfrom track t\n\tjoin genre g on t.genre_id=g.id\nwhere g.name='Jazz' ;",
        "select x.name from track x join genre y on x.genre_id = y.id where y.name = 'Jazz'",
        "select genre.name from track genre join genre track on genre.genre_id = track.id "
        "where track.name = 'Jazz'",
        "select track.name from track join genre on track.genre_id = genre.id where genre.name = 'Jazz'",
        "select t.name from track as t inner join genre as g on t.genre_id = g.id where g.name = 'Jazz'",
        "select t.name from track t , genre g where t.genre_id = g.id and g.name = 'Jazz'",
        "select t.name from genre g join track t on t.genre_id = g.id where g.name = 'Jazz'",
        "select T.name from Track T join Genre G on T.genre_id = G.id where G.name = 'Jazz'",
        'select "a b".name from track "a b" join genre g on "a b".genre_id = g.id where g.name = \'Jazz\'',
        "select t.name as title from track t join genre g on g.id = t.genre_id where 'Jazz' = g.name",
    ],
)
def test_spelling_does_not_matter(domain: SqlDomain, prompt: Prompt, spelling: str) -> None:
    assert domain.signature(prompt, spelling) == domain.signature(prompt, JOIN) is not None


@pytest.mark.oracle("1.2")
@pytest.mark.parametrize(
    "strategy",
    [
        "select t.name from track t where t.genre_id in ( select g.id from genre g where g.name = 'Jazz' )",
        "select t.name from track t where t.genre_id = ( select g.id from genre g where g.name = 'Jazz' )",
        "select t.name from track t where exists "
        "( select 1 from genre g where g.id = t.genre_id and g.name = 'Jazz' )",
        "with f as materialized ( select g.id from genre g where g.name = 'Jazz' ) "
        "select t.name from track t join f on t.genre_id = f.id",
        "select t.name from track t join genre g on t.genre_id = g.id where g.name = 'Jazz' order by t.bytes",
    ],
)
def test_another_plan_is_another_strategy(domain: SqlDomain, prompt: Prompt, strategy: str) -> None:
    found = domain.signature(prompt, strategy)
    assert found is not None
    assert found != domain.signature(prompt, JOIN)


@pytest.mark.oracle("1.2")
def test_another_reading_is_another_strategy(domain: SqlDomain, prompt: Prompt) -> None:
    signatures = {domain.signature(prompt, sql) for sql in prompt.payload["readings"].values()}
    assert len(signatures) == 2 and None not in signatures


def test_readings_with_the_same_plan_are_told_apart_by_their_results(domain: SqlDomain) -> None:
    readings = {column: f"select sum( t.{column} ) from track t" for column in ("bytes", "milliseconds")}
    prompt = Prompt("plans", "sql", "test", "", {"readings": readings}, Split.TRAIN, "open")
    plans = {domain._plan(sql) for sql in readings.values()}
    assert len(plans) == 1
    assert len({domain.signature(prompt, sql) for sql in readings.values()}) == 2


def test_a_wrong_answer_has_no_signature(domain: SqlDomain, prompt: Prompt) -> None:
    assert domain.signature(prompt, "select t.name from track t") is None
    assert domain.signature(prompt, "select nonsense") is None


def test_one_alias_for_two_tables_is_the_strategy_that_two_aliases_are(
    domain: SqlDomain, prompt: Prompt
) -> None:
    separate = (
        "select t.name from track t where exists "
        "( select 1 from genre g where g.id = t.genre_id and g.name = 'Jazz' ) and t.id in "
        "( select x.track_id from track_file x where x.bytes > 0 )"
    )
    shared = separate.replace("x.", "g.").replace("track_file x", "track_file g")
    assert domain.signature(prompt, separate) == domain.signature(prompt, shared) is not None


def test_aliases_are_mapped_even_where_the_parser_gives_up(domain: SqlDomain, prompt: Prompt) -> None:
    from stages.domains.sql.signature import _alias_tables_by_pattern, alias_tables

    by_parser, by_pattern = alias_tables(JOIN), _alias_tables_by_pattern(JOIN)
    assert {alias: by_pattern[alias] for alias in by_parser} == by_parser


def test_the_version_names_the_sqlite_that_plans(domain: SqlDomain) -> None:
    import sqlite3

    assert sqlite3.sqlite_version in domain.signature_version
