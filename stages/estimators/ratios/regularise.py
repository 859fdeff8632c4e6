"""Importance weights f(ratio): what is done to a ratio that is too large or too small, and the veto of a row.

Sources: methods.md 9(b); TIS min(r, C), IcePop zero outside [L, U], CISPO clip (arXiv 2506.13585).
A weight multiplies a score function and is never differentiated.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stages.errors import GuardError
from stages.estimators.params import (
    Clip,
    Mask,
    Ratio,
    RegulariserChoice,
    Truncate,
    Uncorrected,
    Unregularised,
)
from stages.estimators.ratios.level import ratio_log_BT


class Weights(NamedTuple):
    """Detached weights of a batch's tokens and what was done to get them."""

    values_BT: Tensor
    """f(ratio), 0 where the mask is false and in vetoed rows."""
    truncated_BT: Tensor
    """True at trained tokens whose ratio is out of the regulariser's bounds; `Uncorrected` has none."""
    vetoed_B: Tensor
    """True for a row with a trained token whose ratio is below the threshold."""
    bounded: int
    """Ratios (tokens, or sequences) beyond e^+-20 that were brought to that bound."""


@torch.no_grad()
def weights_BT(log_ratio_BT: Tensor, mask_BT: Tensor, ratio: Ratio) -> Weights:
    """The detached weight f(ratio) of every token at the ratio's level.

    Args:
        log_ratio_BT: log numerator - log denominator of each sampled token, in nats; anything where masked.
        mask_BT: true at trained tokens.

    Raises GuardError for a trained token whose log-ratio is not a number.
    """
    mask_BT = mask_BT.bool()
    level = ratio_log_BT(log_ratio_BT, mask_BT, ratio.level)
    vetoed_B = vetoed_rows_B(log_ratio_BT, mask_BT, ratio.veto_below)
    kept_BT = mask_BT & ~vetoed_B.unsqueeze(1)
    values_BT = weight(level.values_BT, ratio.regulariser)
    return Weights(
        values_BT.where(kept_BT, torch.zeros_like(values_BT)),
        touched(level.values_BT, ratio.regulariser) & mask_BT,
        vetoed_B,
        level.bounded,
    )


@torch.no_grad()
def vetoed_rows_B(log_ratio_BT: Tensor, mask_BT: Tensor, veto_below: float | None) -> Tensor:
    """True for rows in which any trained token's ratio is below this, whatever the weight's level."""
    if veto_below is None:
        return torch.zeros(mask_BT.shape[0], dtype=torch.bool, device=mask_BT.device)
    return ((log_ratio_BT < math.log(veto_below)) & mask_BT.bool()).any(1)


@torch.no_grad()
def weight(log_ratio: Tensor, regulariser: RegulariserChoice) -> Tensor:
    """f(exp(log_ratio)), elementwise and detached."""
    ratio = log_ratio.exp()
    match regulariser:
        case Unregularised():
            return ratio
        case Uncorrected():
            return torch.ones_like(ratio)
        case Truncate(high=high):
            return ratio.clamp(max=high)
        case Clip(low=low, high=high):
            return ratio.clamp(low, high)
        case Mask():
            return ratio.where(~touched(log_ratio, regulariser), torch.zeros_like(ratio))


@torch.no_grad()
def touched(log_ratio: Tensor, regulariser: RegulariserChoice) -> Tensor:
    """True where f(r) is not r because r is out of bounds."""
    ratio = log_ratio.exp()
    match regulariser:
        case Unregularised() | Uncorrected():
            return torch.zeros_like(ratio, dtype=torch.bool)
        case Truncate(high=high):
            return ratio > high
        case Clip(low=low, high=high) | Mask(low=low, high=high):
            return (ratio < low) | (ratio > high)


@torch.no_grad()
def weighted_mass_NV(logp_NV: Tensor, logq_NV: Tensor, regulariser: RegulariserChoice) -> Tensor:
    """q f(p / q) of every token, detached: the mass whose mean score centering subtracts (methods.md 3(B1)).

    0 where q is 0, since no such token is ever drawn. Written without the ratio, which may overflow where q
    is small and is 0 / 0 where both are 0.

    Args:
        logp_NV, logq_NV: log-probs of the trainer and the sampler; -inf is a probability of 0.
    """
    p_NV, q_NV = logp_NV.exp(), logq_NV.exp()
    zero = torch.zeros_like(p_NV)
    match regulariser:
        case Unregularised():
            return p_NV.where(q_NV > 0, zero)
        case Uncorrected():
            return q_NV
        case Truncate(high=high):
            return torch.minimum(p_NV, high * q_NV)
        case Clip(low=low, high=high):
            return torch.minimum(torch.maximum(p_NV, low * q_NV), high * q_NV)
        case Mask(low=low, high=high):
            return p_NV.where((p_NV >= low * q_NV) & (p_NV <= high * q_NV), zero)


@torch.no_grad()
def batch_normalised_BT(values_BT: Tensor, mask_BT: Tensor, mean: float) -> Tensor:
    """Weights divided by their mean over the trained tokens of the whole batch, so that this mean is 1.

    `mean` counts every micro-batch (`RatioSums.weight_mean`), or the split would change the gradient.
    Raises GuardError when it is not positive.
    """
    if not (mean > 0 and math.isfinite(mean)):
        raise GuardError(
            f"the batch's mean importance weight is {mean}: no sample is left; "
            "take fresher samples or lower ratio.veto_below"
        )
    return (values_BT / mean).where(mask_BT.bool(), torch.zeros_like(values_BT))
