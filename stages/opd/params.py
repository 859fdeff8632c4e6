"""On-policy distillation until its validation stops rising; never together with a task reward."""

from typing import ClassVar

from pydantic import Field, model_validator

from stages.declaration import CHECKPOINT, FILES, Declaration, SeededParams, dataset
from stages.engines.params import EngineParams, OptimizerParams, Sampling, Schedule
from stages.estimators.params import Distillation, FullVocabularyKl, SampledKl, VarianceReducedKl
from stages.estimators.plateau import Plateau


class PlateauParams(Plateau):
    """When distillation has given what it can, and the validations that tell."""

    evaluate_every: int = Field(8, ge=1, description="steps between two validations")
    prompts: int = Field(128, ge=2, description="validation prompts, the same ones each time")
    samples: int = Field(8, ge=2, description="samples a prompt; the score is their mean reward")
    min_steps: int = Field(16, ge=0, description="training steps before which none is a plateau")


class OpdParams(SeededParams):
    expected_seconds: ClassVar[float | None] = 60

    max_steps: int = Field(80, ge=1)
    prompts_per_step: int = Field(64, ge=1)
    plateau: PlateauParams = PlateauParams()
    estimator: Distillation = FullVocabularyKl()
    sampling: Sampling = Sampling()
    engine: EngineParams = EngineParams()
    optimizer: OptimizerParams = OptimizerParams(
        learning_rate=5e-4, warmup_steps=5, schedule=Schedule.CONSTANT
    )

    def work(self) -> float:
        """Samples of the student, those of the validations among them."""
        validation = self.plateau.prompts * self.plateau.samples / self.plateau.evaluate_every
        return self.max_steps * (self.prompts_per_step + validation)

    @model_validator(mode="after")
    def _steps_fit(self) -> "OpdParams":
        if self.plateau.min_steps > self.max_steps:
            raise ValueError("plateau.min_steps must not exceed max_steps")
        sampled = isinstance(self.estimator, SampledKl | VarianceReducedKl)
        if sampled and self.engine.dtype != "float32":
            raise ValueError(
                f"estimator.kind={self.estimator.kind} has its expectation on samples of the student, and an "
                f"engine in {self.engine.dtype} is another sampler: set engine.dtype to float32, or "
                "estimator.kind to full_vocabulary"
            )
        if not self.sampling.full_support:
            raise ValueError(
                "opd compares full distributions: set sampling.top_p to 1 and sampling.top_k to 0"
            )
        return self


STAGE = Declaration(
    name="opd",
    version=2,
    params=OpdParams,
    inputs={
        "policy": CHECKPOINT,
        "teacher": CHECKPOINT,
        "prompts": dataset("prompts/1"),
        "domain": FILES,
    },
    outputs={"checkpoint": CHECKPOINT, "switch": FILES, "rollouts": dataset("rollouts/1")},
)
