"""A broken promise at a hand-over: which stage, column and expectation, and up to three rows."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SHOWN_ROWS = 3


class Severity(StrEnum):
    CRITICAL = "critical"  # nothing is committed
    WARNING = "warning"  # committed, reported


@dataclass(frozen=True)
class Breach:
    """One expectation that does not hold. `column` is empty for a rule about the whole table.

    `rows` names up to three offenders, `positions` are the row numbers of as many as a quarantine keeps,
    `count` is how many there are (0: not about single rows), `output` the stage's output that holds them.
    """

    column: str
    expectation: str
    rows: tuple[str, ...] = ()
    detail: str = ""
    count: int = 0
    positions: tuple[int, ...] = field(default=(), repr=False)
    severity: Severity = Severity.CRITICAL
    output: str = ""

    def __str__(self) -> str:
        where = f"column {self.column}: " if self.column else ""
        shown = ", ".join(self.rows[:SHOWN_ROWS])
        more = f" and {self.count - len(self.rows)} more" if self.rows and self.count > len(self.rows) else ""
        rows = f" (rows {shown}{more})" if self.rows else ""
        return f"{where}{self.expectation}{': ' + self.detail if self.detail else ''}{rows}"


class ContractBreach(Exception):
    """Data or a checkpoint breaks its contract; nothing was committed."""

    exit_code = 3

    def __init__(self, contract: str, breaches: list[Breach], stage: str = "") -> None:
        self.contract = contract
        self.breaches = breaches
        self.stage = stage
        by = f"stage {stage}: " if stage else ""
        super().__init__(f"{by}breaks {contract}: " + "; ".join(str(breach) for breach in breaches))

    def __reduce__(self) -> tuple[Any, ...]:
        """Exceptions cross process boundaries; the default would rebuild this one from its message alone."""
        return type(self).__new__, (type(self), *self.args), self.__dict__
