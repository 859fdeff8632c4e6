"""Entropy of the next-token distribution. A surface measure: strategies are counted by signature."""

import torch
from torch import Tensor


def entropy_BT(logits_BTV: Tensor) -> Tensor:
    """Entropy per position in nats, at temperature 1; a logit of -inf contributes 0. Differentiable."""
    precise = torch.promote_types(logits_BTV.dtype, torch.float32)
    log_p_BTV = logits_BTV.log_softmax(-1, dtype=precise)
    return -(log_p_BTV.exp() * log_p_BTV.clamp(min=torch.finfo(precise).min)).sum(-1)
