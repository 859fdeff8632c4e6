"""Streaming writer of a dataset folder: nothing partial is ever visible.

Parts are written into a hidden folder beside the dataset's place, the manifest is written last, and the
folder is renamed to its final name.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import ipc

from data_contracts.breach import Breach, ContractBreach
from data_contracts.contract import Key
from data_contracts.durable import fsync, fsync_tree
from data_contracts.registry import contract as contract_named
from data_contracts.rows import conform

FORMAT = "arrow-ipc-folder/1"
MANIFEST = "_manifest.json"
COMPRESSION = "zstd"


class DatasetWriter:
    """Used as `with DatasetWriter(final, "rollouts/1", {...}) as writer: writer.write(rows)`.

    The dataset appears at `final` when the block ends without an error; a dataset that an earlier attempt
    left there is replaced. `metadata` becomes schema metadata; the contract's name is added.

    Raises ContractBreach for rows that do not fit and for missing metadata.
    """

    def __init__(
        self, final: Path, contract: str, metadata: dict[str, str], rows_per_part: int = 8192
    ) -> None:
        self.final = Path(final)
        self.contract = contract_named(contract)
        self._metadata = {str(key): value for key, value in metadata.items()} | {Key.CONTRACT.value: contract}
        if missing := [key for key in self.contract.required_metadata if not self._metadata.get(key)]:
            raise ContractBreach(
                contract, [Breach("", f"schema metadata {key}", detail="missing") for key in missing]
            )
        self.schema = self.contract.schema.with_metadata(self._metadata)
        self._building = self.final.with_name(f".{self.final.name}.building")
        self._rows_per_part = rows_per_part
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._parts: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        if self.final.exists() and any(self.final.iterdir()) and not (self.final / MANIFEST).exists():
            raise FileExistsError(f"{self.final} holds something else than a dataset; choose another folder")
        if self._building.exists():
            shutil.rmtree(self._building)
        self._building.mkdir(parents=True)
        return self

    def write(self, rows: Sequence[dict[str, Any]] | pa.Table) -> None:
        """Add rows; a part is written when enough have come together."""
        table = conform(rows, self.contract, self.schema)
        for start in range(0, table.num_rows, self._rows_per_part):
            slice_ = table.slice(start, self._rows_per_part)
            self._buffer.append(slice_)
            self._buffered += slice_.num_rows
            if self._buffered >= self._rows_per_part:
                self._write_part()

    def _write_part(self) -> None:
        if not self._buffered:
            return
        name = f"part-{len(self._parts):05d}.arrow"
        path = self._building / name
        options = ipc.IpcWriteOptions(compression=COMPRESSION)
        with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, self.schema, options=options) as out:
            out.write_table(pa.concat_tables(self._buffer).combine_chunks())
        self._parts.append({"path": name, "rows": self._buffered, "bytes": path.stat().st_size})
        self._buffer, self._buffered = [], 0

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            shutil.rmtree(self._building, ignore_errors=True)
            return
        self._write_part()
        self._publish()

    def _publish(self) -> None:
        manifest = {
            "format": FORMAT,
            "contract": self.contract.name,
            "metadata": self._metadata,
            "rows": sum(part["rows"] for part in self._parts),
            "parts": self._parts,
        }
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        (self._building / MANIFEST).write_text(text)
        fsync_tree(self._building)
        replaced = self.final.with_name(f".{self.final.name}.replaced")
        if replaced.exists():
            shutil.rmtree(replaced)
        if (self.final / MANIFEST).exists():
            os.rename(self.final, replaced)
        os.rename(self._building, self.final)
        fsync(self.final.parent)
        shutil.rmtree(replaced, ignore_errors=True)
