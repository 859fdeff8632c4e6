"""Are two results the same? As bags, or in order; column count and types count; floats within a tolerance."""

import hashlib
import math
from collections import Counter, defaultdict
from typing import Any

Rows = list[tuple[Any, ...]]

RELATIVE, ABSOLUTE = 1e-9, 1e-6
"""Sums of the same numbers in another order differ by about 1e-13."""


def same(left: Rows, right: Rows, ordered: bool) -> bool:
    if len(left) != len(right):
        return False
    if left == right and all(map(_same_types, left, right)):
        return True
    if ordered:
        return all(map(_same_row, left, right))
    return _same_bag(left, right)


def _kind(value: Any) -> str:
    """Storage class, with one class for numbers: COUNT gives 5 where SUM of reals gives 5.0."""
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def _same_types(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(_kind(a) == _kind(b) for a, b in zip(left, right, strict=True))


def _same_value(left: Any, right: Any) -> bool:
    if _kind(left) != _kind(right):
        return False
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(left == right)


def _same_row(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(map(_same_value, left, right))


def _same_bag(left: Rows, right: Rows) -> bool:
    """Group by everything but the numbers; within a group pair rows greedily in sorted order."""
    groups: dict[tuple[Any, ...], tuple[Rows, Rows]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((left, right)):
        for row in rows:
            key = tuple(("number", None) if _kind(v) == "number" else (_kind(v), v) for v in row)
            groups[key][side].append(tuple(v for v in row if _kind(v) == "number"))
    for mine, theirs in groups.values():
        if len(mine) != len(theirs):
            return False
        if Counter(mine) == Counter(theirs):
            continue
        if all(map(_same_row, sorted(mine), sorted(theirs))):
            continue
        if len(mine) > 200 or not _greedy(mine, theirs):
            return False
    return True


def _greedy(left: Rows, right: Rows) -> bool:
    """Rows with several floats can sort differently within the tolerance; pair them one by one."""
    rest = sorted(right)
    for row in sorted(left):
        for index, other in enumerate(rest):
            if _same_row(row, other):
                del rest[index]
                break
        else:
            return False
    return True


def digest(rows: Rows, ordered: bool) -> str:
    """A hash of a result; only for results of references, whose floats are always computed the same way."""
    lines = [repr(row) for row in rows]
    text = "\n".join(lines if ordered else sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()
