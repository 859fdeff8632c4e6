"""What one importance ratio is taken over: a token, a whole sequence, or the geometric mean of its tokens.

Sources: methods.md 9(b); the geometric level is GSPO's s_i (arXiv 2507.18071, Eq. 7).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stages.errors import GuardError
from stages.estimators.params import Level

MAX_LOG_RATIO = 20.0  # e^20 = 5e8: no estimate is left beyond it, and e^89 is infinite in float32


class LogRatio(NamedTuple):
    """A log-ratio for every token, and how many of them (tokens, or whole sequences) the bound moved."""

    values_BT: Tensor
    bounded: int


def ratio_log_BT(log_ratio_BT: Tensor, mask_BT: Tensor, level: Level) -> LogRatio:
    """Log-ratios of the given level, bounded to +-20, 0 where the mask is false; differentiable.

    token: the token's own. sequence: the sum over the row's trained tokens, at each of them.
    geometric: their mean, at each of them.

    Args:
        log_ratio_BT: log numerator - log denominator of each sampled token, in nats; anything where masked.
        mask_BT: true at trained tokens.

    Raises GuardError for a trained token whose log-ratio is not a number.
    """
    mask_BT = mask_BT.bool()
    kept_BT = log_ratio_BT.where(mask_BT, log_ratio_BT.new_zeros(()))
    if level is Level.TOKEN:
        level_BT, outside = kept_BT, kept_BT.abs() > MAX_LOG_RATIO
    else:
        level_B1 = kept_BT.sum(1, keepdim=True)
        if level is Level.GEOMETRIC:
            level_B1 = level_B1 / mask_BT.sum(1, keepdim=True).clamp(min=1)
        level_BT, outside = level_B1.expand_as(kept_BT), level_B1.abs() > MAX_LOG_RATIO
    if level_BT.isnan().any():
        raise GuardError(
            "a trained token's log-ratio is not a number: "
            "record the sampler's log-prob of every token that is trained on"
        )
    bounded_BT = level_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return LogRatio(bounded_BT.where(mask_BT, torch.zeros_like(bounded_BT)), int(outside.sum()))
