"""Reads one SQLite file and nothing else: read-only, an authorizer, a budget of VM steps, a row cap.

`mode=ro` alone does not do it: ATTACH creates files under it. What the sandbox does not cover is a defect in
SQLite itself; `stages.domains.pool` adds a process with resource limits around it.
"""

import re
import sqlite3
from enum import StrEnum
from pathlib import Path
from typing import Any

from stages.domains.sql import schema

STEPS_PER_TICK = 1_000
# fmt: off
FUNCTIONS = frozenset(
    {
        "abs", "avg", "coalesce", "count", "cume_dist", "dense_rank", "first_value", "glob", "group_concat",
        "ifnull", "iif", "instr", "lag", "last_value", "lead", "length", "like", "lower", "ltrim",
        "max", "min", "nth_value", "ntile", "nullif", "percent_rank", "rank", "replace", "round",
        "row_number", "rtrim", "sign", "substr", "substring", "sum", "total", "trim", "typeof",
        "unicode", "upper",
    }
)
# fmt: on
"""Deterministic and cheap: no time, no random number, no large value made from small ones."""

LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

MAX_RESULT_BYTES = 16_000_000
"""Text and blobs of one result: a query that kills its worker would be unscorable instead of wrong."""

NOT_OURS = re.compile(
    r"(sqlite|pragma|json|fts|rtree|dbstat|bytecode|tables_used|generate_series)", re.IGNORECASE
)
"""Beginnings of names that SQLite itself brings: its catalogue and its table-valued functions."""

Rows = list[tuple[Any, ...]]


class Refusal(StrEnum):
    """Why a query has no result; a property of the query, so it is simply wrong."""

    TOO_LONG = "too_long"
    ERROR = "error"  # syntax, unknown names, several statements, not authorized
    VM_STEPS = "vm_steps"
    ROWS = "rows"
    BYTES = "bytes"
    NO_RESULT = "no_result"  # not a query


class Refused(Exception):
    def __init__(self, reason: Refusal, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason


def _authorize(action: int, first: str | None, second: str | None, _db: str | None, _by: str | None) -> int:
    if action == sqlite3.SQLITE_SELECT or action == sqlite3.SQLITE_RECURSIVE:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and _is_readable(first or "", second or ""):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _is_readable(table: str, column: str) -> bool:
    """A table of the database; or, with no column, a CTE or subquery whose rows alone are used."""
    return table.lower() in schema.TABLES or (not column and not NOT_OURS.match(table))


def _fetch(cursor: sqlite3.Cursor, max_rows: int) -> Rows:
    """All rows. Raises Refused as soon as they are too many or too large."""
    rows: Rows = []
    size = 0
    try:
        for row in cursor:
            rows.append(row)
            size += sum(len(value) for value in row if isinstance(value, str | bytes))
            if len(rows) > max_rows:
                raise Refused(Refusal.ROWS)
            if size > MAX_RESULT_BYTES:
                raise Refused(Refusal.BYTES)
    finally:
        cursor.close()
    return rows


class Sandbox:
    """A private connection to one database. Not for use from several threads at once."""

    def __init__(self, path: Path, vm_steps: int, max_sql_chars: int) -> None:
        uri = f"file:{path.resolve().as_posix().replace('?', '%3f').replace('#', '%23')}?mode=ro&immutable=1"
        # no cached statements: a reused one carries its step count into the next run
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
        self._connection.execute("pragma query_only = on")
        self._connection.execute("pragma trusted_schema = off")
        for limit, value in LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(self._tick, STEPS_PER_TICK)
        self._budget = vm_steps // STEPS_PER_TICK
        self._max_sql_chars = max_sql_chars
        self._ticks = 0

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks > self._budget

    def query(self, sql: str, max_rows: int) -> Rows:
        """The rows of one SELECT. Raises Refused, always for the same reason for the same query and file."""
        if len(sql) > self._max_sql_chars:
            raise Refused(Refusal.TOO_LONG)
        return self._run(sql, max_rows)

    def _run(self, sql: str, max_rows: int) -> Rows:
        self._ticks = 0
        try:
            cursor = self._connection.execute(sql)
            if cursor.description is None:
                raise Refused(Refusal.NO_RESULT)
            rows = _fetch(cursor, max_rows)
        except sqlite3.OperationalError as error:
            if self._ticks > self._budget:
                raise Refused(Refusal.VM_STEPS) from error
            raise Refused(Refusal.ERROR, str(error)) from error
        except (sqlite3.Error, sqlite3.Warning, ValueError, UnicodeError) as error:
            raise Refused(Refusal.ERROR, str(error)) from error
        return rows

    def plan(self, sql: str) -> list[tuple[int, int, str]]:
        """EXPLAIN QUERY PLAN: (id, parent, detail) in order."""
        return [(row[0], row[1], row[3]) for row in self._run(f"explain query plan {sql}", 1_000)]

    def close(self) -> None:
        self._connection.close()
