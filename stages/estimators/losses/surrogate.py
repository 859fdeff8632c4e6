"""PPO's pessimistic clip of the ratio to a proximal policy: `PpoClip` at token level, `Gspo` at geometric."""

import torch
from torch import Tensor

from stages.estimators.params import Level
from stages.estimators.ratios.level import MAX_LOG_RATIO, ratio_log_BT


def clipped_surrogate_BT(
    logprobs_BT: Tensor,
    proximal_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    level: Level,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """-min(r A, clip(r, 1 - low, 1 + high) A) at every trained token, 0 elsewhere.

    token: PPO (arXiv 1707.06347, Eq. 7); low != high is DAPO's clip-higher (arXiv 2503.14476, Eq. 8).
    geometric: GSPO (arXiv 2507.18071, Eq. 5), r = (product of token ratios) ** (1 / length).
    sequence: r = the product. At these two levels every token of a row holds the row's one value, so
    `SequenceMean` gives the paper's sum over sequences; another aggregation weights a sequence by its length.

    Args:
        logprobs_BT: log-probs of the sampled tokens under the policy; the only argument differentiated.
        proximal_BT: those of the policy before this batch's first update.
        advantages_BT: [B, T], or [B, 1] for one advantage per sequence.

    Ratios beyond e^+-20 are held there and have no gradient; `clipped_BT` counts them.
    Raises GuardError for a trained token whose log-ratio is not a number.
    """
    ratio_BT = ratio_log_BT(logprobs_BT - proximal_BT.detach(), mask_BT, level).values_BT.exp()
    kept_BT = _kept(advantages_BT, mask_BT)
    within_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio_BT * kept_BT, within_BT * kept_BT)


@torch.no_grad()
def clipped_BT(
    logprobs_BT: Tensor,
    proximal_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    level: Level,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """True at the trained tokens with an advantage that `clipped_surrogate_BT` nevertheless does not move."""
    log_ratio_BT = ratio_log_BT(logprobs_BT - proximal_BT.detach(), mask_BT, level).values_BT
    kept_BT, ratio_BT = _kept(advantages_BT, mask_BT), log_ratio_BT.exp()
    too_high_BT = (kept_BT > 0) & (ratio_BT > 1 + clip_high)
    too_low_BT = (kept_BT < 0) & (ratio_BT < 1 - clip_low)
    return too_high_BT | too_low_BT | ((kept_BT != 0) & (log_ratio_BT.abs() >= MAX_LOG_RATIO))


def _kept(advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.where(mask_BT.bool(), advantages_BT.detach(), advantages_BT.new_zeros(()))
