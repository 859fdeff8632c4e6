"""Streaming writer of a dataset folder: nothing partial is ever visible, and finished parts survive SIGKILL.

Each part is written beside its place, flushed to disk and renamed in. At the end the parts are linked into a
hidden folder, the manifest is written last, and the folder is renamed to its final name.
"""

import json
import os
import shutil
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import ipc

from data_contracts.breach import Breach, ContractBreach
from data_contracts.contract import Key
from data_contracts.registry import contract as contract_named
from data_contracts.rows import conform

FORMAT = "arrow-ipc-folder/1"
MANIFEST = "_manifest.json"


class Codec(StrEnum):
    ZSTD = "zstd"
    NONE = "none"  # read as a memory map, without a copy: for what is read often


class DatasetWriter:
    """Used as `with DatasetWriter(final, "rollouts/1", {...}, work=folder) as writer: writer.write(rows)`.

    With `work`, finished parts stay there whatever happens; after a kill, a writer with the same arguments
    has them already and `rows_done` says how many rows they hold, so that the caller skips these. One `write`
    of at most `rows_per_part` rows is never split, so `rows_done` falls on a boundary of writes;
    `flush_part()` makes a part here and now. Without `work` nothing is resumed.

    The dataset appears at `final` when the block ends without an error; a dataset that an earlier attempt
    left there is replaced. `metadata` becomes schema metadata; the contract's name is added.

    Raises ContractBreach for rows that do not fit, for missing metadata, for a work folder of other metadata.
    """

    def __init__(
        self,
        final: Path,
        contract: str,
        metadata: dict[str, str],
        work: Path | None = None,
        rows_per_part: int = 8192,
        codec: Codec = Codec.ZSTD,
    ) -> None:
        self.final = Path(final)
        self.contract = contract_named(contract)
        self._metadata = {str(key): value for key, value in metadata.items()} | {Key.CONTRACT.value: contract}
        if missing := [key for key in self.contract.required_metadata if not self._metadata.get(key)]:
            raise ContractBreach(
                contract, [Breach("", f"schema metadata {key}", detail="missing") for key in missing]
            )
        self.schema = self.contract.schema.with_metadata(self._metadata)
        self._resumes = work is not None
        self._building = self.final.with_name(f".{self.final.name}.building")
        self._work = work if work is not None else self.final.with_name(f".{self.final.name}.parts")
        self._rows_per_part = rows_per_part
        self._options = ipc.IpcWriteOptions(compression=None if codec is Codec.NONE else codec.value)
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._parts: list[dict[str, Any]] = []

    @property
    def rows_done(self) -> int:
        """Rows in finished parts."""
        return sum(part["rows"] for part in self._parts)

    def __enter__(self) -> Self:
        if self.final.exists() and any(self.final.iterdir()) and not (self.final / MANIFEST).exists():
            raise FileExistsError(f"{self.final} holds something else than a dataset; choose another folder")
        if not self._resumes and self._work.exists():
            shutil.rmtree(self._work)
        self._work.mkdir(parents=True, exist_ok=True)
        for torn in self._work.glob(".tmp-part-*"):
            torn.unlink()
        self._parts = [self._finished(path) for path in sorted(self._work.glob("part-*.arrow"))]
        return self

    def _finished(self, path: Path) -> dict[str, Any]:
        with pa.memory_map(str(path)) as file:
            reader = ipc.open_file(file)
            if not reader.schema.equals(self.schema, check_metadata=True):
                detail = f"{self._work} holds parts of another dataset; remove it to start again"
                raise ContractBreach(self.contract.name, [Breach("", "parts of this dataset", detail=detail)])
            rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
        return {"path": path.name, "rows": rows, "bytes": path.stat().st_size}

    def write(self, rows: Sequence[dict[str, Any]] | pa.Table) -> None:
        """Add rows; a part is written when enough have come together."""
        table = conform(rows, self.contract, self.schema)
        for start in range(0, table.num_rows, self._rows_per_part):
            slice_ = table.slice(start, self._rows_per_part)
            self._buffer.append(slice_)
            self._buffered += slice_.num_rows
            if self._buffered >= self._rows_per_part:
                self.flush_part()

    def flush_part(self) -> None:
        """Make a part of what was written so far; from here on it survives a kill."""
        if not self._buffered:
            return
        name = f"part-{len(self._parts):05d}.arrow"
        torn = self._work / f".tmp-{name}"
        with (
            pa.OSFile(str(torn), "wb") as file,
            ipc.new_file(file, self.schema, options=self._options) as out,
        ):
            out.write_table(pa.concat_tables(self._buffer).combine_chunks())
        _fsync(torn)
        os.rename(torn, self._work / name)
        _fsync(self._work)
        size = (self._work / name).stat().st_size
        self._parts.append({"path": name, "rows": self._buffered, "bytes": size})
        self._buffer, self._buffered = [], 0

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush_part()
            self._publish()
        if not self._resumes:
            shutil.rmtree(self._work, ignore_errors=True)

    def _publish(self) -> None:
        replaced = self.final.with_name(f".{self.final.name}.replaced")
        for stale in (self._building, replaced):
            if stale.exists():
                shutil.rmtree(stale)
        self._building.mkdir(parents=True)
        for part in self._parts:
            _link(self._work / part["path"], self._building / part["path"])
        manifest = {
            "format": FORMAT,
            "contract": self.contract.name,
            "metadata": self._metadata,
            "rows": self.rows_done,
            "parts": self._parts,
        }
        written = self._building / MANIFEST
        written.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        _fsync(written)
        _fsync(self._building)
        if (self.final / MANIFEST).exists():
            os.rename(self.final, replaced)
        os.rename(self._building, self.final)
        _fsync(self.final.parent)
        shutil.rmtree(replaced, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """The same file under a second name; a copy where the file system has no hard links or is another one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        _fsync(target)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
