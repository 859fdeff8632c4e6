"""What a checkpoint is measured on; all evaluations of a run share it, so that differences are paired."""

from typing import ClassVar

from pydantic import Field, model_validator

from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.domains.protocol import Split
from stages.engines.params import EngineParams, Sampling

MANY = 150  # prompts where all of a split are taken; for the estimate only


class EvaluateParams(SeededParams):
    """`samples` completions of each prompt give unbiased estimates for every k up to their number.

    Take some more samples than the largest k: the more, the less an estimate varies, and a sample without a
    verdict leaves one less.
    """

    expected_seconds: ClassVar[float | None] = 40

    prompts: dict[Split, int | None] = Field(
        {Split.TEST_VALUES: 64, Split.TEST_COMPOSITIONS: 32},
        min_length=1,
        description="the splits to measure, and how many prompts of each; null is all of them",
    )
    samples: int = Field(160, ge=2, description="completions of each prompt")
    ks: tuple[int, ...] = Field((1, 8, 32, 128), description="sizes of k-subsets, ascending from 1")
    prompts_per_step: int = Field(6, ge=1, description="prompts between two points of resumption")
    sampling: Sampling = Sampling()
    engine: EngineParams = EngineParams()

    def work(self) -> float:
        return self.samples * sum(limit or MANY for limit in self.prompts.values())

    @model_validator(mode="after")
    def _consistent(self) -> "EvaluateParams":
        if list(self.ks) != sorted(set(self.ks)) or self.ks[:1] != (1,):
            raise ValueError(f"ks must ascend from 1 without repeats, got {list(self.ks)}")
        if self.ks[-1] > self.samples:
            raise ValueError(
                f"k = {self.ks[-1]} needs as many samples, got {self.samples}: raise samples or lower ks"
            )
        if any(limit is not None and limit < 1 for limit in self.prompts.values()):
            raise ValueError(
                "prompts must be at least 1 in every split that is measured; leave out the others"
            )
        if seen := {Split.PRETRAIN, Split.TRAIN} & self.prompts.keys():
            raise ValueError(
                f"an evaluation is of held-out prompts: take the split {min(seen)} out of prompts"
            )
        return self


STAGE = Declaration(
    name="evaluate",
    version=2,
    params=EvaluateParams,
    inputs={"policy": CHECKPOINT, "prompts": dataset("prompts/1"), "domain": FILES},
    outputs={"evaluation": dataset("evaluation/1"), "samples": dataset("rollouts/1"), "summary": FILES},
)
