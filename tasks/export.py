"""A dataset as Parquet or JSON lines, for tools that read no Arrow IPC. Nothing here is read back."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from data_contracts import dataset
from data_contracts.contract import Key
from stages.errors import UsageError


def export(folder: Path, to: Path) -> int:
    """Write the dataset in `folder` to `to`, which appears whole or not at all; returns the number of rows.

    Raises UsageError for a suffix that is neither .parquet nor .jsonl, ContractBreach for data that is not
    what it says.
    """
    writers = {".parquet": _parquet, ".jsonl": _json_lines}
    if to.suffix not in writers:
        raise UsageError(f"cannot export to {to}: name a file that ends in {' or '.join(writers)}")
    batches = dataset.batches(folder, dataset.metadata(folder).get(Key.CONTRACT, ""))
    to.parent.mkdir(parents=True, exist_ok=True)
    with _whole(to) as fresh:
        return writers[to.suffix](batches, fresh)


@contextmanager
def _whole(to: Path) -> Iterator[Path]:
    fresh = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        yield fresh
        os.replace(fresh, to)
    finally:
        fresh.unlink(missing_ok=True)


def _parquet(batches: pa.RecordBatchReader, to: Path) -> int:
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetWriter(to, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _json_lines(batches: pa.RecordBatchReader, to: Path) -> int:
    rows = 0
    with to.open("w", encoding="utf-8") as file:
        for batch in batches:
            for row in batch.to_pylist():
                file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
                rows += 1
    return rows
