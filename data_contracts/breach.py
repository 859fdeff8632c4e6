"""A broken promise at a hand-over: which stage, column and expectation, and up to three rows."""

from dataclasses import dataclass

SHOWN_ROWS = 3


@dataclass(frozen=True)
class Breach:
    """One expectation that does not hold. `column` is empty for a rule about the whole table."""

    column: str
    expectation: str
    rows: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        where = f"column {self.column}: " if self.column else ""
        rows = f" (rows {', '.join(self.rows[:SHOWN_ROWS])})" if self.rows else ""
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
