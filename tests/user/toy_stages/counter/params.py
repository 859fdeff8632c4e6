from typing import ClassVar

from pydantic import Field

from stages.declaration import FILES, Declaration, SeededParams


class CounterParams(SeededParams):
    expected_seconds: ClassVar[float | None] = 3.0

    steps: int = Field(6, ge=1)
    modulus: int = 1_000_003

    def work(self) -> float:
        return self.steps


STAGE = Declaration(
    name="toy_stages.counter",
    version=1,
    params=CounterParams,
    inputs={"before": FILES},
    outputs={"sum": FILES, "trace": FILES},
    optional=frozenset({"before"}),
)
