"""Names that the rl, opd and supervised losses still use; gone when they are moved."""

import torch
from torch import Tensor

from stages.estimators.losses.aggregate import BatchCounts, aggregate
from stages.estimators.losses.surrogate import clipped_surrogate_BT
from stages.estimators.params import Level, TokenMean
from stages.estimators.ratios.metrics import RatioSums, observe

CLIP_LOW = 0.2
CLIP_HIGH = 0.28


def clipped_policy_gradient_BT(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> Tensor:
    """`clipped_surrogate_BT` at token level; both log-probs finite also where masked out."""
    everywhere_BT = torch.ones_like(logprobs_BT, dtype=torch.bool)
    return clipped_surrogate_BT(
        logprobs_BT, old_logprobs_BT, advantages_BT, everywhere_BT, Level.TOKEN, clip_low, clip_high
    )


def token_mean(loss_BT: Tensor, mask_BT: Tensor, batch_tokens: int) -> Tensor:
    """`aggregate` with `TokenMean`."""
    return aggregate(loss_BT, mask_BT, TokenMean(), BatchCounts(batch_tokens, min(1, batch_tokens)))


@torch.no_grad()
def ratio_sums(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    mask_BT: Tensor,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> RatioSums:
    """`observe`, with the tokens outside of the clip band, whatever their advantage."""
    ratio_BT = (logprobs_BT - old_logprobs_BT).exp()
    outside_BT = (ratio_BT < 1 - clip_low) | (ratio_BT > 1 + clip_high)
    return observe(logprobs_BT - old_logprobs_BT, mask_BT, clipped_BT=outside_BT)


def ratio_metrics(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    mask_BT: Tensor,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> dict[str, float]:
    """`RatioSums.metrics` of one batch."""
    return ratio_sums(logprobs_BT, old_logprobs_BT, mask_BT, clip_low, clip_high).metrics()
