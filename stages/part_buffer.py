"""Rows that a stage gathers over its steps: immutable part files, and a list of them in each step checkpoint.

A part is written once, when it is appended; saving a step costs a list of names. Parts that no saved step
lists are leftovers of a killed attempt and are ignored.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from data_contracts.dataset import DatasetWriter
from data_contracts.durable import fsync
from data_contracts.registry import contract
from data_contracts.rows import conform


class PartBuffer:
    def __init__(self, folder: Path, contract_name: str) -> None:
        self.folder = folder
        self.contract = contract(contract_name)
        self._parts: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:
            return
        table = conform(list(rows), self.contract, self.contract.schema)
        name = f"{uuid.uuid4().hex}.arrow"
        with pa.OSFile(str(self.folder / name), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        for path in (self.folder / name, self.folder):  # the bytes, and the name that leads to them
            fsync(path)
        self._parts.append(name)

    def keep_last(self, parts: int) -> None:
        """Forget all but the last `parts` appended parts."""
        self._parts = self._parts[-parts:]

    def save(self, folder: Path) -> None:
        (folder / f"{self.folder.name}.json").write_text(json.dumps(self._parts))

    def load(self, folder: Path) -> None:
        self._parts = json.loads((folder / f"{self.folder.name}.json").read_text())

    def write(self, final: Path, metadata: Mapping[str, str]) -> int:
        """Write the gathered rows as a dataset; returns how many there are."""
        rows = 0
        with DatasetWriter(final, self.contract.name, dict(metadata)) as writer:
            for name in self._parts:
                with pa.memory_map(str(self.folder / name)) as source:
                    table = pa.ipc.open_file(source).read_all()
                    writer.write(table)
                    rows += table.num_rows
        return rows
