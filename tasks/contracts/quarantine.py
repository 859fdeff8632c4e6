"""What broke a contract, kept for reading: `report.json`, and by output the offending rows, or all of it.

Rows go to `<output>.arrow` with a column that says what they broke. Where a breach is not about rows (a
missing column, a torn file, a checkpoint) the output's folder itself is moved there.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from data_contracts import dataset
from data_contracts.breach import Breach, ContractBreach

BROKEN = "broken_expectations"


def set_aside(
    folder: Path,
    *,
    stage: str,
    node: str,
    outputs: Mapping[str, Path],
    breaches: Mapping[str, list[Breach]],
) -> None:
    """Fill `folder`, replacing what an earlier attempt left there. It appears by one rename."""
    fresh = folder.with_name(f".{folder.name}.tmp")
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(parents=True)
    for output, found in breaches.items():
        _keep(outputs[output], fresh / output, found)
    report = {
        "stage": stage,
        "node": node,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "breaches": {output: [breach_json(breach) for breach in found] for output, found in breaches.items()},
    }
    (fresh / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    os.rename(fresh, folder)


def breach_json(breach: Breach) -> dict[str, Any]:
    """A breach without the row numbers, which only a quarantine needs."""
    return {key: value for key, value in asdict(breach).items() if key not in ("positions", "output")}


def _keep(output: Path, target: Path, breaches: list[Breach]) -> None:
    rows = _offending_rows(output, breaches) if all(breach.positions for breach in breaches) else None
    if rows is None:
        shutil.move(output, target)
        return
    with pa.OSFile(str(target.with_suffix(".arrow")), "wb") as file, ipc.new_file(file, rows.schema) as out:
        out.write_table(rows)


def _offending_rows(output: Path, breaches: list[Breach]) -> pa.Table | None:
    """None if the dataset cannot be read."""
    try:
        table = dataset.read(output, dataset.metadata(output).get("posttrain.contract", ""))
    except ContractBreach:
        return None
    broken: dict[int, list[str]] = {}
    for breach in breaches:
        for position in breach.positions:
            broken.setdefault(position, []).append(f"{breach.column}: {breach.expectation}")
    positions = sorted(broken)
    rows = table.take(pa.array(positions, pa.int64()))
    return rows.append_column(BROKEN, pa.array(["; ".join(broken[position]) for position in positions]))
