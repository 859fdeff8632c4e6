"""Entropy of the next-token distribution. A surface measure: strategies are counted by signature."""

import torch
from torch import Tensor

from stages.estimators.blockwise import at_positions, per_position, scaled


def entropy_BT(logits_BTV: Tensor, mask_BT: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """Entropy of softmax(logits / temperature) in nats, 0 where the mask is false; differentiable.

    A logit of -inf contributes 0. `temperature`: a number, or [B] for one of each row.
    """
    scale = per_position(temperature, mask_BT)

    def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
        logp_NV = scaled(logits_NV, scale, places_N).log_softmax(-1)
        return (-(logp_NV.exp() * logp_NV.clamp(min=torch.finfo(logp_NV.dtype).min)).sum(-1),)

    return at_positions(function, logits_BTV, mask_BT)[0]
