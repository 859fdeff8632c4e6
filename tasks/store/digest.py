"""Digests of artefacts by content, so that equal results are equal whatever wrote the files.

- dataset: the logical Arrow content in order, with the metadata that contracts know; independent of parts,
  record batches, compression, dictionary encoding, list or large list. NaNs are one value, -0.0 is 0.0.
- checkpoint: tensors, tokenizer, chat template, configuration, training record.
- files: relative paths and bytes.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from data_contracts import dataset
from data_contracts.checkpoint import chat_template_digest, tensor_digest, tokenizer_digest
from data_contracts.checkpoint.files import read_json, read_json_if_present
from data_contracts.checkpoint.record import FILE as RECORD
from data_contracts.contract import Key
from stages.declaration import Kind
from tasks.store.objects import file_records

ALGORITHM = "posttrain arrow 1"
VOLATILE_CONFIG = ("transformers_version", "_name_or_path", "_commit_hash")


def digest(kind: Kind, folder: Path) -> str:
    """`sha256:<hex>` of the artefact in `folder`. Raises ContractBreach if it cannot be read."""
    match kind:
        case Kind.DATASET:
            return dataset_digest(folder)
        case Kind.CHECKPOINT:
            return checkpoint_digest(folder)
        case Kind.FILES:
            return files_digest(folder)


def files_digest(folder: Path) -> str:
    """Of every file's relative path and bytes."""
    return _of_json([[record.path, record.sha256] for record in file_records(folder)])


def checkpoint_digest(folder: Path) -> str:
    """Independent of sharding, of file metadata, and of the library version noted in the configuration."""
    config = read_json(folder / "config.json")
    generation = read_json_if_present(folder / "generation_config.json")
    return _of_json(
        {
            "tensors": tensor_digest(folder),
            "tokenizer": tokenizer_digest(folder),
            "chat_template": chat_template_digest(folder),
            "config": {key: value for key, value in config.items() if key not in VOLATILE_CONFIG},
            "generation": {key: value for key, value in generation.items() if key not in VOLATILE_CONFIG},
            "record": read_json_if_present(folder / RECORD),
        }
    )


def dataset_digest(folder: Path) -> str:
    """See the module's docstring; reads one record batch at a time."""
    metadata = dataset.metadata(folder)
    content: TableDigest | None = None
    for part in dataset.parts(folder):
        with pa.memory_map(str(part)) as file:
            reader = ipc.open_file(file)
            content = content or TableDigest(reader.schema)
            for number in range(reader.num_record_batches):
                content.update(reader.get_batch(number))
    known = {key.value: metadata[key] for key in Key if key in metadata}
    return _of_json({"metadata": known, "content": content.digest() if content else "empty"})


def table_digest(table: pa.Table) -> str:
    """`sha256:<hex>` of a table's columns, without its metadata."""
    content = TableDigest(table.schema)
    for batch in table.to_batches():
        content.update(batch)
    return content.digest()


def _of_json(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


class TableDigest:
    """Fed with record batches of one schema in order; how they were cut leaves no trace."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [(field.name, _ColumnDigest(_canonical(field.type))) for field in schema]

    def update(self, batch: pa.RecordBatch) -> None:
        for (_, column), array in zip(self._columns, batch.columns, strict=True):
            column.update(_decoded(array, column.type))

    def digest(self) -> str:
        whole = hashlib.sha256(ALGORITHM.encode())
        for name, column in self._columns:
            whole.update(json.dumps(name).encode())
            whole.update(column.digest())
        return f"sha256:{whole.hexdigest()}"


def _canonical(type_: pa.DataType) -> pa.DataType:
    """One type for all that hold the same values. Raises TypeError for types that no contract uses."""
    types = pa.types
    if types.is_dictionary(type_):
        return _canonical(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return pa.large_string()
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.large_binary()
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return pa.large_list(pa.field("item", _canonical(type_.value_type)))
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, _canonical(field.type)) for field in type_])
    if types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_):
        return type_
    raise TypeError(f"no digest is defined for Arrow type {type_}")


def _decoded(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == type_ else array.cast(type_)


class _ColumnDigest:
    """Streams of validity, of lengths or values, and of nested columns: each is blind to how rows are cut."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self._rows = 0
        self._nulls = 0
        self._validity = hashlib.sha256()
        self._values = hashlib.sha256()
        self._bytes = hashlib.sha256()
        children = [field.type for field in type_] if pa.types.is_struct(type_) else []
        children += [type_.value_type] if pa.types.is_large_list(type_) else []
        self._children = [_ColumnDigest(child) for child in children]

    def digest(self) -> bytes:
        whole = hashlib.sha256(json.dumps([str(self.type), self._rows, self._nulls]).encode())
        for stream in (self._validity, self._values, self._bytes):
            whole.update(stream.digest())
        for child in self._children:
            whole.update(child.digest())
        return whole.digest()

    def update(self, array: pa.Array) -> None:
        if not len(array):
            return
        self._rows += len(array)
        self._nulls += array.null_count
        self._validity.update(_contiguous(array.is_valid().cast(pa.uint8())))
        if pa.types.is_large_list(self.type):
            lengths = pc.fill_null(pc.list_value_length(array).cast(pa.int64()), 0)
            self._values.update(_contiguous(lengths))
            self._children[0].update(array.flatten())  # honours slices, skips null lists
        elif pa.types.is_struct(self.type):
            for child, field in zip(self._children, array.flatten(), strict=True):
                child.update(field)
        elif pa.types.is_large_string(self.type) or pa.types.is_large_binary(self.type):
            self._update_bytes(array)
        else:
            self._values.update(_contiguous(_filled(array)))

    def _update_bytes(self, array: pa.Array) -> None:
        if array.null_count:
            array = pc.fill_null(array, "" if pa.types.is_large_string(self.type) else b"")
        offsets = np.frombuffer(array.buffers()[1], np.int64, array.offset + len(array) + 1)[array.offset :]
        self._values.update(_bytes(np.diff(offsets)))
        if (data := array.buffers()[2]) is not None:
            self._bytes.update(memoryview(data)[offsets[0] : offsets[-1]])


def _filled(array: pa.Array) -> pa.Array:
    """Nulls as zeros (validity is a stream of its own); booleans as bytes."""
    if pa.types.is_boolean(array.type):
        return pc.fill_null(array, False).cast(pa.uint8())
    return pc.fill_null(array, pa.scalar(0).cast(array.type)) if array.null_count else array


def _contiguous(array: pa.Array) -> memoryview:
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)  # one NaN
        values = values + np.zeros((), values.dtype)  # -0.0 becomes 0.0
    return _bytes(values)


def _bytes(values: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(values).data
