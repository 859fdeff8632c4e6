"""Adversarial answers: none may be rewarded, harm a file, hang, or get another verdict the second time."""

import hashlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stages.domains.protocol import Prompt, Split, Unscorable, Verdict
from stages.domains.sql.domain import SqlDomain
from stages.domains.sql.params import SqlParams
from stages.domains.sql.sandbox import Refusal, Refused, Sandbox
from stages.domains.sql.verifier import Verifier


def asking(reference: str, **others: str) -> Prompt:
    readings = {"a": reference, **others}
    return Prompt("test", "sql", "test", "question", {"readings": readings}, Split.TRAIN, "open")


def reward(domain: SqlDomain, reference: str, answer: str) -> float | None:
    # the id must differ with the reference: verdicts are kept by prompt id and text
    return domain.verify([replace(asking(reference), id=reference)], [answer])[0].reward


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


COUNT = "select count(*) from track t"


@pytest.mark.parametrize(
    "answer",
    [
        "attach database 'evil.db' as evil",
        "attach database ':memory:' as evil",
        "detach database main",
        "pragma query_only = off",
        "pragma table_info(track)",
        "select * from pragma_table_info('track')",
        "select count(*) from sqlite_master",
        "select name from sqlite_schema",
        "delete from track",
        "update track set name = 'x'",
        "insert into genre values ( 99 , 'x' )",
        "drop table track",
        "create table evil ( x )",
        "create temp table evil ( x )",
        "create temp view evil as select 1",
        "vacuum into 'evil.db'",
        "begin exclusive",
        "savepoint evil",
        "reindex",
        "analyze",
        "select load_extension('evil')",
        "select writefile('evil.db', 'x')",
        "select readfile('/etc/passwd')",
        "select random() from track t",
        "select current_timestamp",
        "select date('now')",
        "select hex(zeroblob(100000000))",
        "select printf('%.*c', 100000000, 'x')",
        f"{COUNT} ; drop table track",
        f"{COUNT} ; {COUNT}",
        "select count(*) from track t where t.name = '\x00'\x00",
        "select '\udc80'",
        "",
        ";",
        "-- nothing",
        "select",
        "select count(*) from no_such_table",
        "(" * 500 + COUNT + ")" * 500,
        "select " + "1 + " * 900 + "1",
    ],
)
def test_what_is_no_plain_read_of_the_tables_is_wrong_and_leaves_no_trace(
    domain: SqlDomain, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = digests(domain.folder)
    assert reward(domain, COUNT, answer) == 0.0
    assert digests(domain.folder) == before
    assert list(tmp_path.iterdir()) == []
    assert reward(domain, COUNT, COUNT) == 1.0  # the connection still works


@pytest.mark.parametrize(
    "answer",
    [
        "with recursive n ( x ) as ( select 1 union all select x + 1 from n ) select count(*) from n",
        "with recursive n ( x ) as ( select 1 union all select x from n ) select x from n where x < 0",
        "select count(*) from track a , track b , track c",
        "select max( a.name || b.name || c.name ) from track a , track b , track c",
        "select group_concat( a.name ) from track a , track b , track c",
    ],
)
def test_a_query_without_end_is_wrong_by_counted_steps_and_the_verdict_repeats(
    sql_folder: Path, answer: str
) -> None:
    sandbox = Sandbox(sql_folder / "main.sqlite", vm_steps=200_000, max_sql_chars=2_000)
    started = time.monotonic()
    for _ in range(3):
        with pytest.raises(Refused) as refused:
            sandbox.query(answer, 100)
        assert refused.value.reason in (Refusal.VM_STEPS, Refusal.ERROR)
    assert time.monotonic() - started < 10
    assert sandbox.query(COUNT, 1) == [(3503,)]
    sandbox.close()


def test_the_step_budget_decides_alike_at_its_edge_whatever_ran_before(sql_folder: Path) -> None:
    sql = "select count(*) from track a , genre b where a.id > b.id"

    def runs(sandbox: Sandbox) -> bool:
        try:
            sandbox.query(sql, 1)
        except Refused:
            return False
        return True

    outcomes = {}
    for steps in range(100_000, 1_200_000, 100_000):
        sandbox = Sandbox(sql_folder / "main.sqlite", steps, 2_000)
        first = runs(sandbox)
        sandbox.query("select t.name from track t where t.milliseconds > 10", 5_000)
        outcomes[steps] = {first, *(runs(sandbox) for _ in range(4))}
        sandbox.close()
    assert all(len(seen) == 1 for seen in outcomes.values())
    assert {True} in outcomes.values() and {False} in outcomes.values()


def test_an_endless_stream_of_rows_is_cut_off_at_the_cap(sql_folder: Path) -> None:
    sandbox = Sandbox(sql_folder / "main.sqlite", 2_000_000, 2_000)
    with pytest.raises(Refused) as refused:
        sandbox.query(
            "with recursive n ( x ) as ( select 1 union all select x + 1 from n ) select x from n", 50
        )
    assert refused.value.reason is Refusal.ROWS
    sandbox.close()


def test_duplicates_and_order_count(domain: SqlDomain) -> None:
    many = "select t.genre_id from track t where t.album_id < 20"
    assert reward(domain, many, many.replace("select", "select distinct")) == 0.0
    ascending = "select c.last_name from customer c order by c.last_name"
    assert reward(domain, ascending, ascending + " desc") == 0.0
    assert reward(domain, ascending, "select c.last_name from customer c order by c.last_name asc") == 1.0
    assert reward(domain, ascending, "select c.last_name from customer c order by c.id") == 0.0
    unordered = "select c.last_name from customer c"
    assert reward(domain, unordered, ascending) == 1.0  # the reference has no order: a bag


def test_an_order_inside_a_subquery_does_not_order_the_reference(domain: SqlDomain) -> None:
    inner = "select last_name from ( select c.last_name from customer c order by c.last_name limit 60 )"
    assert reward(domain, inner, "select c.last_name from customer c order by c.id desc") == 1.0


def test_columns_are_counted_and_typed(domain: SqlDomain) -> None:
    names = "select g.name from genre g"
    assert reward(domain, names, "select g.name , g.name from genre g") == 0.0
    assert reward(domain, names, "select g.id , g.name from genre g") == 0.0
    two = "select g.id , g.name from genre g"
    assert reward(domain, two, "select g.name , g.id from genre g") == 0.0
    ids = "select g.id from genre g"
    assert reward(domain, ids, "select g.id || '' from genre g") == 0.0
    assert reward(domain, ids, "select g.id * 1.0 from genre g") == 1.0  # one class of numbers
    assert reward(domain, ids, "select nullif( g.id , 1 ) from genre g") == 0.0


def test_sums_in_another_order_are_equal_and_near_misses_are_not(domain: SqlDomain) -> None:
    total = "select sum( i.total ) from invoice i where i.customer_id = 5"
    backwards = (
        "select sum( x ) from "
        "( select i.total x from invoice i where i.customer_id = 5 order by i.id desc limit 99 )"
    )
    assert reward(domain, total, backwards) == 1.0
    assert reward(domain, total, f"select ( {total} ) + 0.0000000001") == 1.0
    assert reward(domain, total, f"select ( {total} ) + 0.001") == 0.0


def test_equal_on_the_real_database_only_is_wrong(domain: SqlDomain) -> None:
    assert reward(domain, COUNT, "select 3503") == 0.0


def test_an_empty_or_failing_reference_makes_its_prompt_unscorable(domain: SqlDomain) -> None:
    empty = "select g.name from genre g where g.id < 0"
    for reference in (empty, "select nothing", "select a.id from track a , track b , track c"):
        verdict = domain.verify([replace(asking(reference), id=reference)], [reference])[0]
        assert verdict == Verdict(unscorable=Unscorable.REFERENCE_FAILED)


def test_readings_are_told_apart(domain: SqlDomain) -> None:
    prompt = replace(asking("select count(*) from genre g", b=COUNT), id="two readings")
    assert domain.verify([prompt], [COUNT])[0] == Verdict(reward=1.0, reading="b")
    assert domain.verify([prompt], ["select count(*) from genre"])[0].reading == "a"
    assert domain.verify([prompt], ["select 1"])[0] == Verdict(reward=0.0)


def test_a_long_answer_is_not_executed(sql_folder: Path) -> None:
    verifier = Verifier(sql_folder, SqlParams(max_sql_chars=60))
    assert verifier.verify(asking(COUNT), COUNT).reward == 1.0
    assert verifier.verify(asking(COUNT), COUNT + " " * 20 + "where 1 = 1 and 1 = 1 and 1 = 1").reward == 0.0


def test_fences_and_a_closing_semicolon_are_taken_off(domain: SqlDomain) -> None:
    assert reward(domain, COUNT, f"Here it is:\n```sql\n{COUNT};\n```\nDone.") == 1.0
    assert reward(domain, COUNT, f"  {COUNT.upper()} ;\n") == 1.0


def test_a_verdict_is_a_reward_or_a_reason() -> None:
    with pytest.raises(ValueError, match="either a reward or unscorable"):
        Verdict()
    with pytest.raises(ValueError, match="either a reward or unscorable"):
        Verdict(reward=0.0, unscorable=Unscorable.WALL_CLOCK)
