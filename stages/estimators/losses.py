"""Policy-gradient losses per token, and their aggregation.

No function here divides by a count of its own micro-batch. The caller counts over the whole batch, once, and
divides the sums by that: the gradient is then the same for every split and order of the rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stages.errors import GuardError

CLIP_LOW = 0.2
CLIP_HIGH = 0.28  # "clip-higher" of DAPO (arXiv 2503.14476): room for improbable tokens to rise


def clipped_policy_gradient_BT(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> Tensor:
    """PPO's loss per token, -min(r A, clip(r, 1 - low, 1 + high) A) with r = exp(logprobs - old_logprobs).

    Args:
        logprobs_BT: log-probs of the sampled tokens under the policy; the only argument differentiated.
        old_logprobs_BT: those of the policy before this batch's first update. Finite also where masked out.
        advantages_BT: [B, T], or [B, 1] for one advantage per sequence.
    """
    ratio_BT = (logprobs_BT - old_logprobs_BT.detach()).exp()
    advantages_BT = advantages_BT.detach()
    clipped_BT = ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio_BT * advantages_BT, clipped_BT * advantages_BT)


def masked_sum(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The sum over positions where the mask is true (or non-zero); the others contribute exactly nothing."""
    return loss_BT.where(mask_BT.bool(), loss_BT.new_zeros(())).sum()


def token_mean(loss_BT: Tensor, mask_BT: Tensor, batch_tokens: int) -> Tensor:
    """The micro-batch's share of the mean over the `batch_tokens` trained tokens of the whole batch.

    Raises GuardError when the batch trains on nothing.
    """
    if batch_tokens < 1:
        raise GuardError(
            "the batch has no trainable token: its mask is empty, so there is nothing to learn from"
        )
    return masked_sum(loss_BT, mask_BT) / batch_tokens


def sequence_mean_B(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean of each row over its own trained tokens; 0 for a row without any."""
    kept_BT = loss_BT.where(mask_BT.bool(), loss_BT.new_zeros(()))
    return kept_BT.sum(-1) / mask_BT.bool().sum(-1).clamp(min=1)


@dataclass(frozen=True)
class RatioSums:
    """Sums over trained tokens that add up over micro-batches; `metrics` turns them into means."""

    tokens: float = 0.0
    outside: float = 0.0
    k1: float = 0.0
    k3: float = 0.0
    ratio: float = 0.0
    ratio_squared: float = 0.0

    def __add__(self, other: "RatioSums") -> "RatioSums":
        return RatioSums(
            self.tokens + other.tokens,
            self.outside + other.outside,
            self.k1 + other.k1,
            self.k3 + other.k3,
            self.ratio + other.ratio,
            self.ratio_squared + other.ratio_squared,
        )

    def metrics(self) -> dict[str, float]:
        """clip_fraction: tokens whose ratio is outside the clip band. k1, k3: estimates of KL(old || policy)
        in nats, k3 >= 0. ess: effective sample size over the token count, in (0, 1]. Neutral for no tokens.
        """
        if not self.tokens:
            return {"clip_fraction": 0.0, "k1": 0.0, "k3": 0.0, "ess": 1.0}
        return {
            "clip_fraction": self.outside / self.tokens,
            "k1": self.k1 / self.tokens,
            "k3": self.k3 / self.tokens,
            "ess": self.ratio**2 / (self.tokens * self.ratio_squared),
        }


@torch.no_grad()
def ratio_sums(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    mask_BT: Tensor,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> RatioSums:
    """What `ratio_metrics` needs of one micro-batch, in double precision."""
    log_ratio = (logprobs_BT - old_logprobs_BT)[mask_BT.bool()].double()
    ratio = log_ratio.exp()
    outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
    return RatioSums(
        tokens=float(ratio.numel()),
        outside=float(outside.sum()),
        k1=float(-log_ratio.sum()),
        k3=float((log_ratio.expm1() - log_ratio).sum()),
        ratio=float(ratio.sum()),
        ratio_squared=float(ratio.square().sum()),
    )


def ratio_metrics(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    mask_BT: Tensor,
    clip_low: float = CLIP_LOW,
    clip_high: float = CLIP_HIGH,
) -> dict[str, float]:
    """How far the policy has moved from the old one on these tokens; see `RatioSums.metrics`."""
    return ratio_sums(logprobs_BT, old_logprobs_BT, mask_BT, clip_low, clip_high).metrics()
