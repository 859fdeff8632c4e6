"""The base model: pre-trained wide and mediocre, so that post-training has width to lose."""

from stages.base.params import BaseParams
from stages.base.pretrain import pretrain
from stages.context import StageContext


def run(ctx: StageContext[BaseParams]) -> None:
    pretrain(ctx, "base")
