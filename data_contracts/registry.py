"""Contracts by name. `rollouts/1` lives in `data_contracts/rollouts/`; a breaking change is a new number."""

import importlib
from functools import cache

from data_contracts.breach import Breach, ContractBreach
from data_contracts.contract import Contract

PACKAGES = {
    "prompts/1": "prompts",
    "rollouts/1": "rollouts",
    "elite_archive/1": "elite_archive",
    "sft_examples/1": "sft_examples",
    "evaluation/1": "evaluation",
}


@cache
def contract(name: str) -> Contract:
    """Raises ContractBreach for a name that no folder here defines."""
    if name not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise ContractBreach(
            name or "a contract", [Breach("", "a known contract", detail=f"known are {known}")]
        )
    package = f"data_contracts.{PACKAGES[name]}"
    schema = importlib.import_module(f"{package}.schema")
    checks = importlib.import_module(f"{package}.checks")
    return Contract(name, package, schema.SCHEMA, schema.ROW_ID, schema.TOKEN_COLUMNS, checks.check)
