"""The metrics of evaluation/1. Without pyarrow."""

from enum import StrEnum


class Metric(StrEnum):
    """`{metric}@k` is how it is written."""

    PASS = "pass"
    DISTINCT = "distinct"
    BOTH = "both"

    @property
    def column(self) -> str:
        """Its column of evaluation/1."""
        return f"{self}_at_k"
