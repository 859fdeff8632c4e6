"""JSON files of a checkpoint folder, with one sentence when they are not there."""

import json
from pathlib import Path
from typing import Any

from data_contracts.breach import Breach, ContractBreach

CONTRACT = "checkpoint"


def breach(expectation: str, detail: str = "", column: str = "") -> ContractBreach:
    return ContractBreach(CONTRACT, [Breach(column, expectation, detail=detail)])


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ContractBreach if the file is missing or holds something else."""
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise breach(f"{path.name} present", f"{path.parent} has none", path.name) from error
    except ValueError as error:
        raise breach(f"{path.name} readable", f"{path}: {error}", path.name) from error
    if not isinstance(found, dict):
        raise breach(f"{path.name} a JSON object", f"{path} is not", path.name)
    return found


def read_json_if_present(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
