"""Executes an answer on both databases and compares it with the references of every reading.

A query that fails or exceeds its budget is wrong. A prompt whose reference fails is unscorable: the fault is
ours.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from stages.domains.protocol import Prompt, Unscorable, Verdict
from stages.domains.sql.answer import extract_sql
from stages.domains.sql.compare import Rows, digest, same
from stages.domains.sql.database import MAIN, PERTURBED
from stages.domains.sql.params import SqlParams
from stages.domains.sql.sandbox import Refused, Sandbox


@dataclass(frozen=True)
class Reference:
    """What a reading's reference query returns on each database."""

    results: tuple[Rows, ...]
    ordered: bool
    digest: str


@lru_cache(maxsize=100_000)
def orders_rows(sql: str) -> bool:
    """Does the query order its rows at top level?"""
    if "order" not in sql.lower():
        return False
    import sqlglot

    return sqlglot.parse_one(sql, dialect="sqlite").args.get("order") is not None


class Verifier:
    def __init__(self, folder: Path, params: SqlParams) -> None:
        self._row_cap = params.row_cap
        self.databases = tuple(
            Sandbox(folder / name, params.vm_steps, params.max_sql_chars) for name in (MAIN, PERTURBED)
        )
        self._references: dict[str, Reference | None] = {}
        self._latest: tuple[tuple[str, str], Verdict] | None = None

    def reference(self, sql: str) -> Reference | None:
        """Executed once and kept; None if it fails or is empty on any database."""
        if sql not in self._references:
            self._references[sql] = self._execute(sql)
        return self._references[sql]

    def _execute(self, sql: str) -> Reference | None:
        try:
            results = tuple(database.query(sql, self._row_cap) for database in self.databases)
        except Refused:
            return None
        if not all(results):
            return None
        ordered = orders_rows(sql)
        return Reference(results, ordered, "/".join(digest(rows, ordered) for rows in results))

    def verify(self, prompt: Prompt, text: str) -> Verdict:
        key = (prompt.id, text)
        if self._latest is None or self._latest[0] != key:  # the signature asks for the verdict again
            self._latest = key, self._judge(prompt, text)
        return self._latest[1]

    def _judge(self, prompt: Prompt, text: str) -> Verdict:
        references = {name: self.reference(sql) for name, sql in prompt.payload["readings"].items()}
        valid = {name: found for name, found in references.items() if found is not None}
        if len(valid) < len(references) or not valid:
            return Verdict(unscorable=Unscorable.REFERENCE_FAILED)
        reading = self._match(extract_sql(text), valid)
        return Verdict(reward=0.0 if reading is None else 1.0, reading=reading)

    def _match(self, sql: str, references: dict[str, Reference]) -> str | None:
        left = references
        for index, database in enumerate(self.databases):
            most = max(len(found.results[index]) for found in left.values())
            try:
                rows = database.query(sql, most)
            except Refused:
                return None
            left = {
                name: found for name, found in left.items() if same(rows, found.results[index], found.ordered)
            }
            if not left:
                return None
        return next(iter(left))
