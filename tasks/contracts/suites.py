"""The great-expectations suite of a contract, run on the scalar columns.

They go to GX as ArrowDtype, where NaN fails `between`; as numpy it would count as missing and pass. GX is
imported by the first run (seconds), quietly: its progress bars, telemetry and import-time warnings are off.
"""

import logging
import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from data_contracts.breach import SHOWN_ROWS, Breach, Severity
from data_contracts.contract import Contract
from data_contracts.expectations import KEPT_POSITIONS, row_names

# GX keeps its project in a module-level variable and records warnings process-wide: one suite at a time
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class SuiteResult:
    """`results` is the whole verdict in small: JSON, one entry per expectation."""

    breaches: list[Breach]
    results: list[dict[str, Any]]


def run_suite(table: pa.Table, contract: Contract) -> SuiteResult:
    """Run the contract's suite on a table that fits its schema. Broken expectations become breaches."""
    with _ONE_AT_A_TIME, _quiet():
        raw = _validate(table.select(list(contract.scalar_columns)), contract.suite())
    results = [_small(result, table, contract) for result in raw]
    broken = [
        _breach(small, _positions(result))
        for small, result in zip(results, raw, strict=True)
        if not small["success"]
    ]
    return SuiteResult(broken, results)


@contextmanager
def _quiet() -> Iterator[None]:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _validate(scalars: pa.Table, suite: dict[str, Any]) -> list[dict[str, Any]]:
    import great_expectations as gx
    import pandas as pd
    from great_expectations.core import ExpectationSuite

    logging.getLogger("great_expectations").setLevel(logging.ERROR)  # its import sets another level
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    frame = scalars.to_pandas(types_mapper=pd.ArrowDtype)
    asset = context.data_sources.add_pandas("arrow").add_dataframe_asset("table")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    found = batch.validate(
        ExpectationSuite(**suite),
        result_format={"result_format": "SUMMARY", "partial_unexpected_count": KEPT_POSITIONS},
    )
    return [result.to_json_dict() for result in found.results]


def _small(result: dict[str, Any], table: pa.Table, contract: Contract) -> dict[str, Any]:
    config, found = result["expectation_config"], result["result"]
    kwargs = {key: value for key, value in config["kwargs"].items() if key != "batch_id"}
    small = {
        "expectation": config["type"],
        "kwargs": kwargs,
        "severity": config["severity"],
        "description": config.get("description") or "",
        "success": result["success"],
        "observed": _json_value(found.get("observed_value")),
        "unexpected": found.get("unexpected_count"),
        "rows": list(row_names(table, contract.row_id, _positions(result)[:SHOWN_ROWS])),
    }
    if error := _error(result["exception_info"]):
        small["error"] = error
    return small


def _positions(result: dict[str, Any]) -> list[int]:
    return [int(row) for row in result["result"].get("partial_unexpected_index_list") or []]


def _json_value(observed: Any) -> Any:
    """NaN, which a standard deviation of one value is, has no JSON."""
    return str(observed) if isinstance(observed, float) and not math.isfinite(observed) else observed


def _error(info: dict[str, Any]) -> str:
    """GX's own failure to evaluate an expectation, which it reports flat or by metric."""
    for entry in (info, *(value for value in info.values() if isinstance(value, dict))):
        if entry.get("raised_exception"):
            return str(entry.get("exception_message", "")).strip()
    return ""


def _breach(small: dict[str, Any], positions: list[int]) -> Breach:
    kwargs = small["kwargs"]
    columns = [kwargs[key] for key in ("column", "column_A", "column_B") if key in kwargs]
    limits = {key: value for key, value in kwargs.items() if not key.startswith("column")}
    named = ", ".join(f"{key}={value}" for key, value in sorted(limits.items()))
    observed = f"observed {small['observed']}" if small["observed"] is not None else ""
    return Breach(
        column=", ".join(columns or kwargs.get("column_list", [])),
        expectation=f"{small['expectation']}({named})",
        rows=tuple(small["rows"]),
        detail="; ".join(text for text in (small["description"], observed, small.get("error", "")) if text),
        count=small["unexpected"] or 0,
        positions=tuple(positions),
        severity=Severity(small["severity"]),
    )
