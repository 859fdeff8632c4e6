"""Vectorised expectations on Arrow tables; a breach names column, expectation and rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_contracts.breach import SHOWN_ROWS, Breach

Mask = npt.NDArray[np.bool_]
KEPT_POSITIONS = 1000  # offending rows that a quarantine keeps of one breach


def nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


def row_names(table: pa.Table, row_id: tuple[str, ...], positions: list[int]) -> tuple[str, ...]:
    """`prompt:group:sample` of each row, or its number when the columns that name it are not there."""
    if not all(column in table.column_names for column in row_id):
        return tuple(f"number {position}" for position in positions)
    rows = table.select(list(row_id)).take(pa.array(positions, pa.int64())).to_pylist()
    return tuple(":".join(str(value) for value in row.values()) for row in rows)


class TableUnderCheck:
    """A table, and the breaches found in it so far."""

    def __init__(self, table: pa.Table, row_id: tuple[str, ...]) -> None:
        self.table = table
        self.row_id = row_id
        self.breaches: list[Breach] = []

    # columns as numpy

    def numbers(self, column: str) -> npt.NDArray[Any]:
        """A numeric column, nulls as NaN."""
        return np.asarray(self.table.column(column).to_numpy())

    def codes(self, column: str) -> npt.NDArray[np.int64]:
        """Each value of a column as a small integer; equal values have equal codes, null is -1."""
        encoded = pc.dictionary_encode(self.table.column(column)).unify_dictionaries()
        return np.concatenate(
            [
                pc.fill_null(chunk.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
                for chunk in encoded.chunks
            ]
            or [np.zeros(0, np.int64)]
        )

    def lengths(self, column: str) -> npt.NDArray[np.int64]:
        """The number of elements of each row of a list column."""
        lengths = pc.list_value_length(self.table.column(column)).cast(pa.int64())
        return np.asarray(lengths.to_numpy())

    def null(self, column: str) -> Mask:
        return np.asarray(self.table.column(column).is_null().to_numpy())

    def equals(self, column: str, value: str | int) -> Mask:
        """Rows with this value; null is not."""
        equal = pc.fill_null(pc.equal(self.table.column(column), value), False)
        return np.asarray(equal.to_numpy())

    def rows_with_element(self, column: str, bad: Callable[[npt.NDArray[Any]], Mask]) -> Mask:
        """Rows of a list column with an element for which `bad` is true; a chunk at a time."""
        mask = np.zeros(self.table.num_rows, bool)
        start = 0
        for chunk in self.table.column(column).chunks:
            elements = np.flatnonzero(bad(chunk.flatten().to_numpy(zero_copy_only=False)))
            if len(elements):
                ends = np.cumsum(pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False))
                mask[start + np.searchsorted(ends, elements, side="right")] = True
            start += len(chunk)
        return mask

    # verdicts

    def expect(self, column: str, expectation: str, broken_N: Mask, detail: str = "") -> bool:
        """Record a breach if any row is broken. True when the expectation holds."""
        positions = np.flatnonzero(broken_N)
        if not len(positions):
            return True
        kept = [int(position) for position in positions[:KEPT_POSITIONS]]
        self.breaches.append(
            Breach(
                column,
                expectation,
                rows=row_names(self.table, self.row_id, kept[:SHOWN_ROWS]),
                detail=detail,
                count=len(positions),
                positions=tuple(kept),
            )
        )
        return False

    def expect_all(self, column: str, expectation: str, holds: bool, detail: str = "") -> bool:
        """Record a breach about the whole table."""
        if not holds:
            self.breaches.append(Breach(column, expectation, detail=detail))
        return holds

    # rules that every contract has

    def not_empty(self) -> bool:
        return self.expect_all("", "at least one row", self.table.num_rows > 0)

    def no_nulls(self, field: pa.Field) -> None:
        """No nulls in a column that allows none, nor anywhere inside a nested one."""
        column = self.table.column(field.name)
        if not field.nullable and column.null_count:
            self.expect(field.name, "not null", self.null(field.name))
        if pa.types.is_list(column.type):
            self.expect(field.name, "no null elements", self._rows_with_null_element(column))

    def _rows_with_null_element(self, column: pa.ChunkedArray) -> Mask:
        mask = np.zeros(len(column), bool)
        start = 0
        for chunk in column.chunks:
            values = chunk.flatten()
            missing = values.is_null()
            if pa.types.is_struct(values.type):
                for child in values.flatten():
                    missing = pc.or_(missing, child.is_null())
            elements = np.flatnonzero(missing.to_numpy(zero_copy_only=False))
            if len(elements):
                ends = np.cumsum(pc.fill_null(pc.list_value_length(chunk), 0).to_numpy(zero_copy_only=False))
                mask[start + np.searchsorted(ends, elements, side="right")] = True
            start += len(chunk)
        return mask

    def finite(self) -> None:
        """No NaN and no infinity in any column of floats, nested or not."""
        for field in self.table.schema:
            if pa.types.is_floating(field.type):
                values = pc.fill_null(pc.is_finite(self.table.column(field.name)), True)
                self.expect(field.name, "finite", ~np.asarray(values.to_numpy()))
            elif pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type):
                self.expect(
                    field.name, "finite", self.rows_with_element(field.name, lambda x: ~np.isfinite(x))
                )

    def tokens_below(self, column: str, vocabulary: int) -> None:
        self.expect(
            column,
            f"token ids in [0, {vocabulary})",
            self.rows_with_element(column, lambda x: (x < 0) | (x >= vocabulary)),
        )

    # rules that several contracts share

    def in_set(self, column: str, allowed: list[str] | list[int]) -> None:
        inside = pc.is_in(self.table.column(column), value_set=pa.array(allowed))
        self.expect(column, f"one of {', '.join(map(str, allowed))}", ~np.asarray(inside.to_numpy()))

    def not_blank(self, column: str) -> None:
        """A text with something in it; null is another rule's business."""
        blank = pc.fill_null(
            pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(self.table.column(column))), 0), False
        )
        self.expect(column, "not blank", np.asarray(blank.to_numpy()))

    def unique(self, *columns: str) -> None:
        """No two rows agree in all these columns; the later ones are named."""
        code = np.zeros(self.table.num_rows, np.int64)
        for column in columns:
            codes = self.codes(column)
            # re-encoded after each column, so that the product of the numbers of codes cannot overflow
            code = np.unique(code * (int(codes.max()) + 2) + codes, return_inverse=True)[1]
        repeated = np.ones(self.table.num_rows, bool)
        repeated[np.unique(code, return_index=True)[1]] = False
        self.expect(", ".join(columns), "unique", repeated)
