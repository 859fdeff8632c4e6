"""The strategy of a correct query: its normalised plan, with the results of the reading that it meets.

The plan is SQLite's EXPLAIN QUERY PLAN tree with aliases mapped to tables, and constants, index names and
subquery numbers erased. The result alone would merge strategies, the plan alone readings with the same plan.
"""

import hashlib
import re
import sqlite3

from stages.domains.sql import schema
from stages.domains.sql.sandbox import Sandbox

VERSION = f"eqp-1/sqlite-{sqlite3.sqlite_version}"

NAMED = re.compile(
    r"^(SCAN|SEARCH|MATERIALIZE|CO-ROUTINE|BLOOM FILTER ON) (\(.+?\)|.+?)"
    r"(?= USING | VIRTUAL TABLE| LEFT-JOIN| \(|$)"
)
INDEX_NAME = re.compile(r"(INDEX) (?!\()\S+(?= \(|$)")
TABLE_ALIAS = re.compile(rf"\b({'|'.join(schema.TABLES)})\s+(?:as\s+)?([a-z_]\w*)")
NUMBER = re.compile(r"(SUBQUERY|SUBQUERIES|INDEX) \d+")


def normalised_plan(database: Sandbox, sql: str) -> str:
    """One line a node, indented by depth. Raises Refused if the query does not compile."""
    rows = database.plan(sql)
    tables = alias_tables(sql)
    if any(len(names) > 1 for names in tables.values()):  # one alias, several tables: the plan cannot be read
        sql = with_unique_aliases(sql)
        rows, tables = database.plan(sql), alias_tables(sql)
    depth = {0: 0}
    lines = []
    for node, parent, detail in rows:
        depth[node] = depth.get(parent, 0) + 1
        lines.append("." * depth[node] + _normalise(detail, tables))
    return "\n".join(lines)


def _normalise(detail: str, tables: dict[str, set[str]]) -> str:
    def named(match: re.Match[str]) -> str:
        name = match.group(2).lower()
        known = tables.get(name)
        return f"{match.group(1)} {'+'.join(sorted(known)) if known else 'derived'}"

    detail = NAMED.sub(named, detail)
    detail = INDEX_NAME.sub(r"\1", detail)
    return NUMBER.sub(r"\1", detail)


def alias_tables(sql: str) -> dict[str, set[str]]:
    """Lower-case name as it appears in a plan -> the tables it stands for; CTEs and subqueries are absent."""
    import sqlglot
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError:
        return _alias_tables_by_pattern(sql)
    generic = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables: dict[str, set[str]] = {}
    for table in tree.find_all(exp.Table):
        name = table.name.lower()
        if name not in generic:
            tables.setdefault(table.alias_or_name.lower(), set()).add(name)
    return tables


def _alias_tables_by_pattern(sql: str) -> dict[str, set[str]]:
    """For the rare query that SQLite runs and sqlglot cannot read: a table's name and the word after it."""
    tables = {name: {name} for name in schema.TABLES}
    for name, alias in TABLE_ALIAS.findall(sql.lower()):
        tables.setdefault(alias, set()).add(name)
    return tables


def with_unique_aliases(sql: str) -> str:
    """The same query with another alias for every occurrence of a table; unchanged if it cannot be read."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except sqlglot.errors.SqlglotError:
        return sql
    number = 0
    for scope in traverse_scope(tree):
        for table in scope.tables:
            if not isinstance(scope.sources.get(table.alias_or_name), exp.Table):
                continue
            number += 1
            old, new = table.alias_or_name, f"{table.name}_{number}"
            for column in tree.find_all(exp.Column):
                if column.table.lower() == old.lower() and _belongs(column, scope, old):
                    column.set("table", exp.to_identifier(new))
            table.set("alias", exp.TableAlias(this=exp.to_identifier(new)))
    return tree.sql(dialect="sqlite")


def _belongs(column: "object", scope: "object", alias: str) -> bool:
    """Is `scope` the innermost query around the column that has a source of this name?"""
    from sqlglot import exp

    assert isinstance(column, exp.Expression)
    select = column.find_ancestor(exp.Select)
    while select is not None:
        sources = {
            t.alias_or_name.lower()
            for t in select.find_all(exp.Table, exp.Subquery)
            if t.find_ancestor(exp.Select) is select
        }
        if alias.lower() in sources:
            return select is scope.expression  # type: ignore[attr-defined]
        select = select.find_ancestor(exp.Select)
    return False


def signature(plan: str, results: str) -> str:
    return hashlib.sha256(f"{VERSION}\n{plan}\n{results}".encode()).hexdigest()[:16]
