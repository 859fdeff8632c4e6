"""The opd stage's present names for `distillation`."""

import torch
from torch import Tensor

from stages.estimators import distillation
from stages.estimators.distillation import sampled_advantage_BT
from stages.estimators.distribution import FromLogits

__all__ = ["reverse_kl_BT", "sampled_advantage_BT"]


def reverse_kl_BT(student_logits_BTV: Tensor, teacher_logits_BTV: Tensor) -> Tensor:
    """`distillation.reverse_kl_BT` at every position, at temperature 1."""
    everywhere_BT = torch.ones_like(student_logits_BTV[..., 0], dtype=torch.bool)
    return distillation.reverse_kl_BT(student_logits_BTV, everywhere_BT, FromLogits(teacher_logits_BTV))
