"""The elite archive: one verified answer for each (prompt, strategy) that the frozen base can still reach."""

from typing import ClassVar

from pydantic import Field

from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.engines.params import EngineParams, Sampling

MANY = 1_000  # prompts where all are taken; for the estimate only


class ArchiveParams(SeededParams):
    """A prompt is sampled in rounds until `patience` rounds in a row brought it no new strategy."""

    expected_seconds: ClassVar[float | None] = 40

    prompts: int | None = Field(200, ge=1, description="training prompts that get an archive; None is all")
    samples_per_round: int = Field(16, ge=2, description="a group of rollouts/1 has two samples at least")
    patience: int = Field(2, ge=1, description="rounds without a new strategy after which a prompt is done")
    max_rounds: int = Field(6, ge=1)
    prompts_per_part: int = Field(25, ge=1, description="what a kill can cost")
    sampling: Sampling = Sampling()
    engine: EngineParams = EngineParams()

    def work(self) -> float:
        return (self.prompts or MANY) * self.samples_per_round * self.max_rounds


STAGE = Declaration(
    name="archive",
    version=2,
    params=ArchiveParams,
    inputs={"base": CHECKPOINT, "prompts": dataset("prompts/1"), "domain": FILES},
    outputs={"archive": dataset("elite_archive/1"), "rollouts": dataset("rollouts/1"), "curve": FILES},
)
