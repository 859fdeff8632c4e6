"""A dataset is a folder: `part-00000.arrow`... and `_manifest.json`, written last; readers trust it alone.

`read` validates schema and metadata on every open. For the writer, see `DatasetWriter`.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from data_contracts.breach import Breach, ContractBreach
from data_contracts.checkpoint import facts
from data_contracts.contract import Contract, Key
from data_contracts.registry import contract as contract_named
from data_contracts.writer import FORMAT, MANIFEST, DatasetWriter

__all__ = ["DatasetWriter", "batches", "metadata", "parts", "read", "rows", "token_metadata"]


def read(folder: Path, contract: str, columns: list[str] | None = None) -> pa.Table:
    """The dataset; `columns` decompresses only these.

    Raises ContractBreach naming the column or metadata key that is not as the contract says.
    """
    agreed = contract_named(contract)
    tables = []
    schema = None
    for part in parts(folder, contract):
        reader = _open(part, contract)
        schema = reader.schema
        _validate(schema, agreed, folder)
        if columns is not None:
            wanted = [schema.get_field_index(name) for name in columns]
            if -1 in wanted:
                unknown = [Breach(name, "present") for name in columns if name not in schema.names]
                raise ContractBreach(contract, unknown)
            reader = _open(part, contract, wanted)
        tables.append(reader.read_all())
    if schema is None:  # nothing was written: still a dataset of the contract, for its check to refuse
        schema = agreed.schema.with_metadata(metadata(folder))
        _validate(schema, agreed, folder)
        tables.append(schema.empty_table())
    table = pa.concat_tables(tables)
    return table.select(columns) if columns is not None else table


def batches(folder: Path, contract: str) -> "pa.lib.RecordBatchReader":
    """The dataset as a stream of record batches, one part in memory at a time. Raises as `read`."""
    agreed = contract_named(contract)
    schema = agreed.schema.with_metadata(metadata(folder))

    def stream() -> Any:
        for part in parts(folder, contract):
            reader = _open(part, contract)
            _validate(reader.schema, agreed, folder)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    return pa.RecordBatchReader.from_batches(schema, stream())


def metadata(folder: Path) -> dict[str, str]:
    """The schema metadata of the dataset, from its manifest. Raises ContractBreach if there is none."""
    found: dict[str, str] = _manifest(folder)["metadata"]
    return found


def token_metadata(checkpoint: Path) -> dict[str, str]:
    """The schema metadata of a dataset whose token columns are of this checkpoint's tokenizer."""
    found = facts(checkpoint)
    return {Key.TOKENIZER: found.tokenizer_digest, Key.VOCABULARY: str(found.vocabulary_size)}


def rows(folder: Path) -> int:
    """The number of rows, from the manifest."""
    return sum(int(part["rows"]) for part in _manifest(folder)["parts"])


def parts(folder: Path, contract: str = "") -> list[Path]:
    """The files that the manifest lists. Raises ContractBreach if one is missing or of another size."""
    found = []
    for part in _manifest(folder)["parts"]:
        path = folder / part["path"]
        if not path.is_file() or path.stat().st_size != part["bytes"]:
            detail = f"{path} is missing or not of {part['bytes']} bytes"
            raise ContractBreach(contract or "the dataset format", [Breach("", "whole", detail=detail)])
        found.append(path)
    return found


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, json.JSONDecodeError) as error:
        detail = f"{folder} has no readable {MANIFEST}: it was not written to the end"
        raise ContractBreach("the dataset format", [Breach("", "complete", detail=detail)]) from error
    if manifest.get("format") != FORMAT:
        detail = f"{folder} is of format {manifest.get('format')}, expected {FORMAT}"
        raise ContractBreach("the dataset format", [Breach("", "readable", detail=detail)])
    return manifest


def _open(part: Path, contract: str, fields: list[int] | None = None) -> ipc.RecordBatchFileReader:
    try:
        options = ipc.IpcReadOptions(included_fields=fields)
        return ipc.open_file(pa.memory_map(str(part)), options=options)
    except pa.ArrowInvalid as error:
        raise ContractBreach(contract, [Breach("", "an Arrow file", detail=f"{part}: {error}")]) from error


def _validate(schema: pa.Schema, contract: Contract, folder: Path) -> None:
    """Raises ContractBreach unless types, nullability and metadata are the contract's."""
    if breaches := schema_breaches(schema, contract):
        raise ContractBreach(f"{contract.name} ({folder})", breaches)


def schema_breaches(schema: pa.Schema, contract: Contract) -> list[Breach]:
    """How a schema differs from the contract's: columns, types, nullability, required metadata."""
    breaches = []
    for field in contract.schema:
        at = schema.get_field_index(field.name)
        if at == -1:
            breaches.append(Breach(field.name, "present"))
        elif not schema.field(at).equals(field):
            detail = f"found {_described(schema.field(at))}"
            breaches.append(Breach(field.name, f"of type {_described(field)}", detail=detail))
    unknown = [name for name in schema.names if name not in contract.schema.names]
    breaches += [Breach(name, "not a column of the contract") for name in unknown]
    found = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    for key in contract.required_metadata:
        if not found.get(key):
            breaches.append(Breach("", f"schema metadata {key}", detail="missing"))
    if (name := found.get(Key.CONTRACT, contract.name)) != contract.name:
        breaches.append(
            Breach("", f"schema metadata {Key.CONTRACT} = {contract.name}", detail=f"found {name}")
        )
    return breaches


def _described(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
