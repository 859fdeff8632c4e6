"""The gates that a checkpoint must pass before it is promoted."""

from typing import ClassVar

from pydantic import Field

from stages.declaration import CHECKPOINT, FILES, Declaration, StageParams, dataset


class PromoteParams(StageParams):
    """A fall counts when it exceeds its tolerance and also `sigmas` standard errors of the paired difference.

    So neither noise blocks a promotion, nor a difference that is certain but too small to matter. Of many
    capabilities some fall by chance, so their gates share one error rate, and a capability of few prompts is
    judged by the spread of changes within all capabilities. `before` is the evaluation of the base, `after`
    that of the candidate.
    """

    expected_seconds: ClassVar[float | None] = 2

    sigmas: float = Field(2.0, ge=0, description="standard errors that a difference must exceed to be one")
    minimum_gain: float = Field(0.02, description="rise of pass@1 over the base; also beyond noise")
    capability_tolerance: float = Field(
        0.05, ge=0, description="fall of pass@1 of any one capability, and of any one split"
    )
    capability_error: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="chance that noise alone fails any of the capabilities' gates (Bonferroni)",
    )
    reach_tolerance: float = Field(0.02, ge=0, description="fall of pass@k at the largest k")
    width_tolerance: float = Field(
        0.1,
        ge=0,
        description="fall of distinct@k at the largest k while pass@1 rises, as a share of the base's",
    )
    readings_tolerance: float = Field(0.05, ge=0, description="fall of both@k at the largest k")
    max_unscorable: float = Field(
        0.02, ge=0, le=1, description="share of the candidate's samples without a verdict"
    )


STAGE = Declaration(
    name="promote",
    version=1,
    params=PromoteParams,
    inputs={
        "policy": CHECKPOINT,
        "before": dataset("evaluation/1"),
        "sft": dataset("evaluation/1"),
        "opd": dataset("evaluation/1"),
        "after": dataset("evaluation/1"),
    },
    outputs={"decision": FILES},
    optional=frozenset({"sft", "opd"}),
)
