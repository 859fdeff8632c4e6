"""Stands in for `ratios.regularise` until it is there."""

import torch
from torch import Tensor

from stages.estimators.params import Clip, Mask, RegulariserChoice, Truncate, Uncorrected


def weighted_mass_NV(logp_NV: Tensor, logq_NV: Tensor, regulariser: RegulariserChoice) -> Tensor:
    """q f(p / q)."""
    p_NV, q_NV = logp_NV.exp(), logq_NV.exp()
    if isinstance(regulariser, Uncorrected):
        return q_NV
    if isinstance(regulariser, Truncate):
        return torch.minimum(p_NV, regulariser.high * q_NV)
    if isinstance(regulariser, Clip):
        return torch.clamp(p_NV, regulariser.low * q_NV, regulariser.high * q_NV)
    if isinstance(regulariser, Mask):
        inside_NV = (regulariser.low * q_NV <= p_NV) & (p_NV <= regulariser.high * q_NV)
        return p_NV.where(inside_NV, p_NV.new_zeros(()))
    return p_NV
