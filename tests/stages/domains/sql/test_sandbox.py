"""What may be read: tables, and rows of CTEs and subqueries; what SQLite brings itself may not."""

from pathlib import Path

import pytest

from stages.domains.protocol import Split
from stages.domains.sql.domain import SqlDomain
from stages.domains.sql.params import SqlParams
from stages.domains.sql.sandbox import MAX_RESULT_BYTES, Refusal, Refused, Sandbox

TRACKS = 3503


@pytest.fixture
def sandbox(sql_folder: Path) -> Sandbox:
    return Sandbox(sql_folder / "main.sqlite", vm_steps=20_000_000, max_sql_chars=2_000)


@pytest.mark.parametrize(
    "sql",
    [
        "with c as ( select distinct id from track ) select count(*) from c",
        "with c as materialized ( select id from track ) select count(*) from c",
        "with c as ( select 1 as x from track ) select count(*) from c",
        "select count(*) from ( select distinct id from track )",
        "with c as ( select id from track limit 10000 ) select sum( 1 ) from c",
    ],
)
def test_a_cte_whose_rows_alone_are_used_is_read(sandbox: Sandbox, sql: str) -> None:
    assert sandbox.query(sql, 1) == [(TRACKS,)]


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from sqlite_master",
        "select count(*) from SQLITE_SCHEMA",
        "select count(*) from pragma_table_info('track')",
        "select count(*) from pragma_database_list",
        "select count(*) from json_each('[1]')",
        "select 1 from sqlite_master limit 1",
    ],
)
def test_what_sqlite_brings_itself_is_not_read(sandbox: Sandbox, sql: str) -> None:
    with pytest.raises(Refused) as refused:
        sandbox.query(sql, 10)
    assert refused.value.reason is Refusal.ERROR


def test_a_large_result_is_refused_before_it_fills_the_memory(sandbox: Sandbox) -> None:
    wide = "select replace( group_concat( name ) , ' ' , '          ' ) from track t where t.id < 800"
    rows = 4_000
    sql = f"with w as materialized ( {wide} ) select w.* from w join track on track.id <= {rows}"
    [(value,)] = sandbox.query(wide, 1)
    assert len(value) * TRACKS > MAX_RESULT_BYTES
    with pytest.raises(Refused) as refused:
        sandbox.query(sql, rows)
    assert refused.value.reason is Refusal.BYTES


def test_the_longest_allowed_answer_has_a_plan_and_a_signature(domain: SqlDomain) -> None:
    prompt = domain.prompts(Split.TRAIN)[0]
    reference = domain.reference(prompt)
    padded = reference + " " * (SqlParams().max_sql_chars - len(reference) - 1) + " "
    assert len(padded) == SqlParams().max_sql_chars
    assert domain.signature(prompt, padded) == domain.signature(prompt, reference) is not None
