"""Rows to Arrow under a contract. Misfits are named by column and row, which Arrow's cast errors are not."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from data_contracts.breach import SHOWN_ROWS, Breach, ContractBreach
from data_contracts.contract import Contract
from data_contracts.expectations import row_names

CAST_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)


def conform(rows: Sequence[dict[str, Any]] | pa.Table, contract: Contract, schema: pa.Schema) -> pa.Table:
    """A table of exactly `schema`, the contract's with a dataset's metadata.

    Raises ContractBreach naming column, expectation and up to three rows.
    """
    table = _cast(rows, contract) if isinstance(rows, pa.Table) else _build(rows, contract)
    breaches = [
        Breach(
            field.name,
            "not null",
            rows=row_names(table, contract.row_id, nulls[:SHOWN_ROWS]),
            count=len(nulls),
        )
        for field, column in zip(contract.schema, table.columns, strict=True)
        if not field.nullable and column.null_count
        for nulls in [[number for number, missing in enumerate(column.is_null().to_pylist()) if missing]]
    ]
    if breaches:
        raise ContractBreach(contract.name, breaches)
    return pa.Table.from_arrays(table.columns, schema=schema)


def _cast(table: pa.Table, contract: Contract) -> pa.Table:
    missing_or_unknown(set(table.column_names), contract)
    columns = []
    for field in contract.schema:
        column = table.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except CAST_ERRORS as error:
            rows = _offenders([column.slice(number, 1) for number in range(len(column))], _caster(field.type))
            names = row_names(table, contract.row_id, rows)
            raise _mistyped(contract, field, names, str(error)) from error
    return pa.Table.from_arrays(columns, names=contract.schema.names)


def _build(rows: Sequence[dict[str, Any]], contract: Contract) -> pa.Table:
    expected = set(contract.schema.names)
    for row in rows:
        if row.keys() != expected:
            missing_or_unknown(set(row), contract, (row_name(row, contract),))
    columns = []
    for field in contract.schema:
        values = [row[field.name] for row in rows]
        try:
            columns.append(_array(values, field.type))
        except CAST_ERRORS as error:
            at = _offenders([[value] for value in values], partial(_array, type_=field.type))
            names = tuple(row_name(rows[number], contract) for number in at)
            raise _mistyped(contract, field, names, str(error)) from error
    return pa.Table.from_arrays(columns, names=contract.schema.names)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """As `pa.array`, which would silently cut 1.5 to 1 and drop unknown keys of nested dicts."""
    array = pa.array(values, type_)
    leaf = type_.value_type if pa.types.is_list(type_) else type_
    if pa.types.is_integer(leaf):
        found = pa.infer_type(values) if values else leaf
        if pa.types.is_floating(found.value_type if pa.types.is_list(found) else found):
            raise ValueError("a float where an integer is expected")
    if pa.types.is_struct(leaf):
        keys = {field.name for field in leaf}
        for item in (item for value in values for item in value or ()):
            if set(item) != keys:
                raise ValueError(f"keys {sorted(item)} where {sorted(keys)} are expected")
    return array


def _caster(type_: pa.DataType) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    return lambda column: column.cast(type_)


def _offenders(single_rows: Sequence[Any], convert: Callable[[Any], object]) -> list[int]:
    """The first rows that do not convert by themselves."""
    found: list[int] = []
    for number, row in enumerate(single_rows):
        try:
            convert(row)
        except CAST_ERRORS:
            found.append(number)
            if len(found) == SHOWN_ROWS:
                break
    return found


def _mistyped(contract: Contract, field: pa.Field, rows: tuple[str, ...], detail: str) -> ContractBreach:
    return ContractBreach(contract.name, [Breach(field.name, f"of type {field.type}", rows, detail)])


def missing_or_unknown(found: set[str], contract: Contract, rows: tuple[str, ...] = ()) -> None:
    """Raises ContractBreach unless the columns found are the contract's."""
    expected = contract.schema.names
    breaches = [Breach(name, "present", rows) for name in expected if name not in found]
    breaches += [Breach(name, "not a column of the contract", rows) for name in sorted(found - set(expected))]
    if breaches:
        raise ContractBreach(contract.name, breaches)


def row_name(row: dict[str, Any], contract: Contract) -> str:
    return ":".join(str(row.get(column, "?")) for column in contract.row_id)
