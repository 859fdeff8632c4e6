"""How one answer can be written in several ways: idioms for the filter times shapes for the operation.

A strategy is (shape, idiom). The filter part and the operation part of a query are independent pieces of
text, the same for every family, so that a new pairing of the two can be understood from its parts.
"""

from dataclasses import dataclass
from enum import StrEnum


class Idiom(StrEnum):
    """How the rows of the base table are narrowed by a named value."""

    DIRECT = "direct"
    JOIN = "join"
    IN = "in"
    EXISTS = "exists"
    CTE = "cte"
    EQUALS = "equals"


@dataclass(frozen=True)
class Hop:
    """One step towards the table that holds the value: `join {table} {alias} on {left} = {right}`."""

    table: str
    alias: str
    left: str  # key on the side we come from, like "t.album_id"
    right: str  # key of this table, like "al.id"

    @property
    def source(self) -> str:
        return f"{self.table} {self.alias}"

    @property
    def join(self) -> str:
        return f" join {self.source} on {self.left} = {self.right}"


@dataclass(frozen=True)
class Path:
    """From a base table to the column that the value is compared with.

    `direct`: a column of the base table that holds the value as well. `unique`: at most one row of the last
    table has the value, so that `=` with a scalar subquery is right.
    """

    base: str
    alias: str
    hops: tuple[Hop, ...]
    column: str
    direct: str | None = None
    unique: bool = False

    def idioms(self) -> tuple[Idiom, ...]:
        first = Idiom.DIRECT if self.direct else Idiom.JOIN
        second = (Idiom.JOIN,) if self.direct and self.hops[0].table != self.base else ()
        last = (Idiom.EQUALS,) if self.unique else ()
        return (first, *second, Idiom.IN, Idiom.EXISTS, Idiom.CTE, *last)

    def narrow(self, idiom: Idiom, value: str) -> tuple[str, str]:
        """What stands before `select` (a CTE or nothing), and FROM with WHERE; `value` is an SQL literal."""
        base = f"from {self.base} {self.alias}"
        test = f"{self.column} = {value}"
        first, last = self.hops[0], self.hops[-1]
        inner = first.source + "".join(hop.join for hop in self.hops[1:])
        match idiom:
            case Idiom.DIRECT:
                return "", f"{base} where {self.direct} = {value}"
            case Idiom.JOIN:
                return "", f"{base}{''.join(hop.join for hop in self.hops)} where {test}"
            case Idiom.IN:
                return "", f"{base} where {first.left} in ( select {first.right} from {inner} where {test} )"
            case Idiom.EXISTS:
                link = f"{first.right} = {first.left}"
                return "", f"{base} where exists ( select 1 from {inner} where {link} and {test} )"
            case Idiom.CTE:
                key = first.right.split(".")[1]
                named = f"with f as materialized ( select {first.right} from {inner} where {test} ) "
                return named, f"{base} join f on {first.left} = f.{key}"
            case Idiom.EQUALS:
                joins = "".join(hop.join for hop in self.hops[:-1])
                found = f"( select {last.right} from {last.source} where {test} )"
                return "", f"{base}{joins} where {last.left} = {found}"


class Shape(StrEnum):
    """How the narrowed rows become the answer."""

    PLAIN = "plain"
    INTERSECT = "intersect"
    DISTINCT = "distinct"
    WINDOW = "window"
    ORDER = "order"
    BARE_MAX = "bare_max"
    RANK = "rank"
    MAX = "max"


TEMPLATES: dict[str, dict[Shape, str]] = {
    "list": {
        Shape.PLAIN: "{w}select {c} {f}",
        Shape.INTERSECT: "{w}select {c} from {b} intersect select {c} {f}",
    },
    "count": {
        Shape.PLAIN: "{w}select count(*) {f}",
        Shape.DISTINCT: "{w}select count( distinct {a}.id ) {f}",
        Shape.WINDOW: "{w}select count(*) over ( ) {f} limit 1",
    },
    "average": {
        Shape.PLAIN: "{w}select avg( {c} ) {f}",
        Shape.WINDOW: "{w}select avg( {c} ) over ( ) {f} limit 1",
    },
    "sum": {
        Shape.PLAIN: "{w}select sum( {c} ) {f}",
        Shape.WINDOW: "{w}select sum( {c} ) over ( ) {f} limit 1",
    },
    "maximum": {
        Shape.MAX: "{w}select max( {c} ) {f}",
        Shape.ORDER: "{w}select {c} {f} order by {c} desc limit 1",
        Shape.WINDOW: "{w}select max( {c} ) over ( ) {f} limit 1",
    },
    "longest": {
        Shape.ORDER: "{w}select {c} {f} order by {m} desc limit 1",
        Shape.BARE_MAX: "{w}select name from ( select {c} , max( {m} ) {f} )",
        Shape.RANK: (
            "{w}select name from ( select {c} , rank( ) over ( order by {m} desc ) r {f} ) where r = 1"
        ),
    },
    "top": {
        Shape.ORDER: "{w}select {c} {f} order by {m} desc limit 3",
    },
}

MOST_STRATEGIES = 8


def _adds(shape: Shape, idiom: Idiom) -> bool:
    """SQLite plans `count( distinct id )` like `count(*)` when it reads one table only."""
    return shape is not Shape.DISTINCT or idiom is Idiom.JOIN


@dataclass(frozen=True)
class Reading:
    """One interpretation of a family: what is computed, from which rows.

    `column` is what is listed or aggregated, `measure` what "longest" goes by. `distinct_rows`: no value of
    `column` occurs twice in an answer, so that a set operation is right.
    """

    operation: str
    path: Path
    column: str = ""
    measure: str = ""
    distinct_rows: bool = False

    def strategies(self, value: str) -> list[str]:
        """3 to 8 correct queries: every idiom in the first shape, then the other shapes."""
        shapes = list(TEMPLATES[self.operation])
        if not self.distinct_rows:
            shapes = [shape for shape in shapes if shape is not Shape.INTERSECT]
        idioms = self.path.idioms()
        pairs = [(shapes[0], idiom) for idiom in idioms]
        pairs += [
            (shape, idiom) for idiom in (idioms[0], Idiom.IN) for shape in shapes[1:] if _adds(shape, idiom)
        ]
        return [self.query(shape, idiom, value) for shape, idiom in pairs[:MOST_STRATEGIES]]

    def query(self, shape: Shape, idiom: Idiom, value: str) -> str:
        before, rows = self.path.narrow(idiom, value)
        path = self.path
        return TEMPLATES[self.operation][shape].format(
            w=before, f=rows, a=path.alias, b=f"{path.base} {path.alias}", c=self.column, m=self.measure
        )
