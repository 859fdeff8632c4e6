"""Plausible wrong queries for the pre-training mixture: a slip or two of a hurried author, mostly valid SQL.

A slip may by luck leave the answer right; callers who need wrong answers only must verify.
"""

import random
import re
from collections.abc import Callable

COLUMNS = re.compile(r"\b(?P<alias>[a-z]{1,2})\.(?P<column>[a-z_]+)\b")
SWAPS: dict[str, tuple[str, ...]] = {
    "milliseconds": ("bytes", "unit_price"),
    "bytes": ("milliseconds",),
    "name": ("id", "composer"),
    "title": ("id",),
    "total": ("id",),
    "email": ("phone", "last_name"),
    "last_name": ("first_name", "email"),
    "country": ("state", "city"),
    "region": ("state", "city"),
    "city": ("country", "state"),
    "billing_city": ("billing_country",),
    "composer": ("name",),
    "genre_id": ("media_type_id", "id"),
    "style_id": ("media_type_id", "id"),
    "album_id": ("id",),
    "artist_id": ("id",),
    "customer_id": ("id",),
    "track_id": ("id",),
    "tracks": ("album_id",),
}
AGGREGATES = ("count", "sum", "avg", "max", "min")


def _choose(sql: str, pattern: str, rng: random.Random) -> re.Match[str] | None:
    found = list(re.finditer(pattern, sql))
    return rng.choice(found) if found else None


def _replace(sql: str, match: re.Match[str], text: str) -> str:
    return sql[: match.start()] + text + sql[match.end() :]


def wrong_column(sql: str, rng: random.Random) -> str | None:
    found = [m for m in COLUMNS.finditer(sql) if m["column"] in SWAPS]
    if not found:
        return None
    match = rng.choice(found)
    return _replace(sql, match, f"{match['alias']}.{rng.choice(SWAPS[match['column']])}")


def dropped_filter(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r" (?:where|and) [a-z]+\.[a-z_]+ = (?:'[^']*'|\d+)", rng)
    return _replace(sql, match, "") if match else None


def wrong_operator(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r"= (?='|\d|\()", rng)
    return _replace(sql, match, rng.choice(("!= ", "> ", "< "))) if match else None


def wrong_aggregate(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r"\b(count|sum|avg|max|min)(?=\( |\(\*\))", rng)
    if match is None:
        return None
    others = [a for a in AGGREGATES if a != match[1]]
    if sql[match.end() :].startswith("(*)"):
        match_all = re.compile(r"count\(\*\)").search(sql)
        return _replace(sql, match_all, "max( id )") if match_all else None
    return _replace(sql, match, rng.choice(others))


def wrong_direction(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r" desc", rng)
    return _replace(sql, match, "") if match else None


def wrong_limit(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r" limit \d", rng)
    return _replace(sql, match, rng.choice(("", " limit 2", " limit 5"))) if match else None


def negated(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r" (in|exists) \(", rng)
    return _replace(sql, match, f" not {match[1]} (") if match else None


def dropped_join(sql: str, rng: random.Random) -> str | None:
    match = _choose(sql, r" join [a-z_]+ [a-z]+ on [a-z_.]+ = [a-z_.]+", rng)
    return _replace(sql, match, "") if match else None


def wrong_value(sql: str, rng: random.Random) -> str | None:
    """A value copied badly: a piece of it is lost."""
    match = _choose(sql, r"'([^']{3,})'", rng)
    if match is None:
        return None
    cut = rng.randint(1, len(match[1]) - 2)
    kept = match[1][:cut] if rng.random() < 0.5 else match[1][cut:]
    return sql.replace(match[0], f"'{kept.strip()}'")


SLIPS: tuple[Callable[[str, random.Random], str | None], ...] = (
    wrong_column,
    wrong_column,
    dropped_filter,
    wrong_operator,
    wrong_aggregate,
    wrong_direction,
    wrong_limit,
    negated,
    dropped_join,
    wrong_value,
)


def corrupt(sql: str, rng: random.Random) -> str:
    """A query that differs from `sql` by one slip, sometimes two."""
    broken = sql
    slips = 2 if rng.random() < 0.2 else 1
    while slips:
        changed = rng.choice(SLIPS)(broken, rng)
        if changed is not None and changed != broken:
            broken, slips = changed, slips - 1
    return broken if broken != sql else corrupt(sql, rng)
