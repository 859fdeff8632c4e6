"""The check between a stage's process and the commit of its outputs.

Layers: schema and metadata, vectorised Arrow rules, agreement with the inputs, the great-expectations suite.
A critical breach stops the commit and puts the offenders into quarantine; with warnings it goes on.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from data_contracts import checkpoint, dataset
from data_contracts.breach import Breach, ContractBreach, Severity
from data_contracts.checkpoint import CheckpointFacts, facts
from data_contracts.contract import Key
from data_contracts.registry import contract as contract_named
from stages.declaration import Declaration, Kind
from tasks.contracts.agreement import (
    Reference,
    architecture_breaches,
    checkpoint_breaches,
    metadata_breaches,
    reference,
)
from tasks.contracts.quarantine import breach_json, set_aside
from tasks.contracts.suites import run_suite


@dataclass(frozen=True)
class OutputCheck:
    """The verdict on one artefact. `suite` is empty where none ran; `facts` are of a checkpoint."""

    contract: str
    breaches: list[Breach] = field(default_factory=list)
    rows: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    suite: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def critical(self) -> list[Breach]:
        return [breach for breach in self.breaches if breach.severity is Severity.CRITICAL]

    @property
    def warnings(self) -> list[Breach]:
        return [breach for breach in self.breaches if breach.severity is Severity.WARNING]

    def to_json(self) -> dict[str, Any]:
        return {
            "contract": self.contract,
            "rows": self.rows,
            "facts": self.facts,
            "breaches": [breach_json(breach) for breach in self.critical],
            "warnings": [breach_json(breach) for breach in self.warnings],
            "suite": self.suite,
            "seconds": round(self.seconds, 3),
        }


def check_outputs(
    declaration: Declaration,
    *,
    node: str,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    reports: Path,
    quarantine: Path,
) -> dict[str, Any]:
    """What was found, by output, small enough for a manifest; in full as `reports/contract-<output>.json`.

    Raises ContractBreach naming the node, columns, expectations and rows after filling `quarantine`.
    """
    checks = judge(declaration, inputs, outputs)
    reports.mkdir(parents=True, exist_ok=True)
    for name, check in checks.items():
        text = json.dumps(check.to_json(), indent=1, allow_nan=False) + "\n"
        (reports / f"contract-{name}.json").write_text(text)
    critical = [replace(breach, output=name) for name, check in checks.items() for breach in check.critical]
    if critical:
        found = {name: check.critical for name, check in checks.items() if check.critical}
        set_aside(quarantine, stage=declaration.name, node=node, outputs=outputs, breaches=found)
        broken = ", ".join(f"{check.contract} ({name})" for name, check in checks.items() if check.critical)
        raise ContractBreach(broken, critical, node)
    return {name: _summary(check) for name, check in checks.items()}


def _summary(check: OutputCheck) -> dict[str, Any]:
    return {
        "contract": check.contract,
        "expectations": len(check.suite),
        "warnings": [str(warning) for warning in check.warnings],
        "seconds": round(check.seconds, 3),
    }


def judge(
    declaration: Declaration, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, OutputCheck]:
    """Every output that has a contract, checked; raises nothing for what it finds."""
    agreed = reference(declaration, inputs)
    checks = {}
    for name, artefact in declaration.outputs.items():
        if artefact.kind is Kind.CHECKPOINT:
            checks[name] = check_checkpoint(outputs[name], agreed)
            if found := checks[name].facts:
                known = CheckpointFacts(**{**found, "eos_ids": tuple(found["eos_ids"])})
                different = architecture_breaches(declaration, inputs, known)
                checks[name] = replace(checks[name], breaches=checks[name].breaches + different)
                agreed = agreed or Reference.of_checkpoint(f"output {name}", known)
    for name, artefact in declaration.outputs.items():
        if artefact.kind is Kind.DATASET:
            checks[name] = check_dataset(outputs[name], artefact.contract or "", agreed)
    return checks


def check_checkpoint(folder: Path, agreed: Reference | None = None) -> OutputCheck:
    """A checkpoint by its own contract, and against what the stage agreed on."""
    began = time.monotonic()
    breaches = checkpoint.check(folder)
    try:
        found = facts(folder)
    except ContractBreach:  # `check` says so
        return OutputCheck("checkpoint", breaches, seconds=time.monotonic() - began)
    if agreed is not None:
        breaches = breaches + checkpoint_breaches(found, agreed, "it")
    return OutputCheck("checkpoint", breaches, facts=found.to_json(), seconds=time.monotonic() - began)


def check_dataset(folder: Path, contract: str, agreed: Reference | None = None) -> OutputCheck:
    """A dataset through all layers; a later one runs only on what an earlier one let pass."""
    began = time.monotonic()
    promised = contract_named(contract)
    try:
        table = dataset.read(folder, contract)
    except ContractBreach as error:
        return OutputCheck(contract, error.breaches, seconds=time.monotonic() - began)
    breaches = []
    if agreed is not None and promised.token_columns:
        breaches = metadata_breaches(dataset.metadata(folder), agreed, "it")
        if agreed.vocabulary_size is not None:
            bound = {Key.VOCABULARY.value.encode(): str(agreed.vocabulary_size).encode()}
            table = table.replace_schema_metadata({**table.schema.metadata, **bound})
    breaches += promised.check(table)
    suite: list[dict[str, Any]] = []
    if not breaches:
        verdict = run_suite(table, promised)
        breaches, suite = verdict.breaches, verdict.results
    return OutputCheck(contract, breaches, table.num_rows, suite=suite, seconds=time.monotonic() - began)
