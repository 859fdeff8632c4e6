"""What a plan's estimate is scaled by grows with what a user makes larger."""

import pytest

from stages.archive.params import ArchiveParams
from stages.base.params import BaseParams
from stages.evaluate.params import EvaluateParams
from stages.opd.params import OpdParams, PlateauParams
from stages.rl.params import RlParams
from stages.sft.params import SftParams
from stages.teacher.params import TeacherParams


@pytest.mark.parametrize(
    ("params", "larger", "ratio"),
    [
        (BaseParams(steps=100), BaseParams(steps=200), 2.0),
        (TeacherParams(rows_per_step=32), TeacherParams(rows_per_step=64), 2.0),
        (SftParams(steps=10), SftParams(steps=30), 3.0),
        (ArchiveParams(prompts=50), ArchiveParams(prompts=200), 4.0),
        (EvaluateParams(samples=160), EvaluateParams(samples=320), 2.0),
        (EvaluateParams(prompts={"test-values": 10}), EvaluateParams(prompts={"test-values": 25}), 2.5),
        (OpdParams(max_steps=40), OpdParams(max_steps=80), 2.0),
        (
            OpdParams(prompts_per_step=8, plateau=PlateauParams(evaluate_every=4, prompts=8, samples=4)),
            OpdParams(prompts_per_step=8, plateau=PlateauParams(evaluate_every=4, prompts=16, samples=4)),
            (8 + 16) / (8 + 8),
        ),
        (RlParams(group_size=8), RlParams(group_size=16), 2.0),
    ],
)
def test_work_grows_with_what_costs_time(params, larger, ratio):
    assert larger.work() / params.work() == pytest.approx(ratio)
