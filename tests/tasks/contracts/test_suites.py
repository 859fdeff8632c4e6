"""The suites in great-expectations itself: they load, and see what numpy would hide."""

import math
from typing import Any

import pyarrow as pa
import pytest

from data_contracts.breach import Severity
from data_contracts.registry import PACKAGES, contract
from tasks.contracts.suites import run_suite


def empty(name: str) -> pa.Table:
    return contract(name).schema.empty_table()


@pytest.mark.parametrize("name", PACKAGES)
def test_every_suite_refuses_an_empty_table(name: str) -> None:
    verdict = run_suite(empty(name), contract(name))
    assert len(verdict.results) == len(contract(name).suite()["expectations"])
    rows = [breach for breach in verdict.breaches if breach.expectation.startswith("expect_table_row_count")]
    assert [breach.severity for breach in rows] == [Severity.CRITICAL]


def evaluation(**change: Any) -> pa.Table:
    rows = [
        {
            "prompt_id": f"p{number}",
            "capability": "c",
            "split": "train",
            "ambiguity": "",
            "k": 1,
            "n": 4,
            "correct": number,
            "unscorable": 0,
            "strategies": number,
            "pass_at_k": number / 4,
            "distinct_at_k": number / 4,
            "both_at_k": None,
        }
        for number in range(1, 4)
    ]
    return pa.Table.from_pylist([*rows[:-1], {**rows[-1], **change}], contract("evaluation/1").schema)


def broken(table: pa.Table) -> dict[str, tuple[str, ...]]:
    """The rows of each rule about rows."""
    verdict = run_suite(table, contract("evaluation/1"))
    return {breach.column: breach.rows for breach in verdict.breaches if breach.count}


def test_nan_does_not_pass_for_missing() -> None:
    assert broken(evaluation()) == {}
    assert broken(evaluation(pass_at_k=math.nan))["pass_at_k"] == ("p3:1",)


def test_pairs_and_compound_keys_name_their_columns() -> None:
    assert broken(evaluation(k=5)) == {"n, k": ("p3:5",)}
    assert broken(evaluation(prompt_id="p1")) == {"prompt_id, k": ("p1:1", "p1:1")}


def test_an_expectation_that_cannot_be_evaluated_is_broken_not_skipped() -> None:
    class WithoutColumn:
        scalar_columns = ("prompt_id",)
        row_id = ("prompt_id",)
        suite = staticmethod(contract("evaluation/1").suite)

    verdict = run_suite(evaluation(), WithoutColumn())  # type: ignore[arg-type]
    between = [breach for breach in verdict.breaches if breach.column == "pass_at_k"]
    assert between
    assert 'The column "pass_at_k" in BatchData does not exist' in between[0].detail
