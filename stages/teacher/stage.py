"""The teacher: the same pre-training with its own shape, on clean rows."""

from stages.base.pretrain import pretrain
from stages.context import StageContext
from stages.teacher.params import TeacherParams


def run(ctx: StageContext[TeacherParams]) -> None:
    pretrain(ctx, "teacher")
