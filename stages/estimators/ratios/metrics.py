"""How far the policy is from the one that sampled, as sums that add over micro-batches."""

from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from stages.estimators.params import Level
from stages.estimators.ratios.level import ratio_log_BT
from stages.estimators.ratios.regularise import Weights


@dataclass(frozen=True, kw_only=True)
class RatioSums:
    """Sums over trained tokens in double precision, unless said otherwise; `metrics` makes means of them."""

    tokens: float = 0.0
    sequences: float = 0.0  # rows with a trained token
    k1: float = 0.0
    k3: float = 0.0
    ratio: float = 0.0
    ratio_squared: float = 0.0
    bounded: float = 0.0
    weight: float = 0.0
    weight_squared: float = 0.0
    weights_bounded: float = 0.0  # ratios of the weight's level: tokens, or rows
    truncated: float = 0.0
    vetoed: float = 0.0  # rows
    outside: float = 0.0  # clipped tokens
    staleness: float = 0.0
    stalest: float = 0.0  # a maximum, not a sum

    def __add__(self, other: "RatioSums") -> Self:
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "stalest"
        }
        return type(self)(**sums, stalest=max(self.stalest, other.stalest))

    @property
    def weight_mean(self) -> float:
        """Of the trained tokens, those of vetoed rows among them; 0 without tokens."""
        return self.weight / max(1.0, self.tokens)

    def _ess(self, total: float, squared: float) -> float:
        if not self.tokens or not squared:
            return 1.0
        return min(1.0, total**2 / (self.tokens * squared))  # equal ratios may round to more

    def metrics(self) -> dict[str, float]:
        """Over the trained tokens of all micro-batches; neutral values when there are none.

        k1, k3: estimates in nats of KL(sampler || policy); k3 >= 0. chi2: mean of ratio^2, minus 1.
        ess: (sum of token ratios)^2 / (tokens x sum of their squares), in (0, 1]. weight_ess: the same of the
        weights that the loss uses, at their level and regularised; 1 where it uses none or all are 0.
        weights_bounded: ratios of that level (tokens, or whole rows) that were held at e^+-20, a count.
        clip_fraction, truncated, bounded: shares of tokens. vetoed: share of sequences.
        staleness, stalest: mean and largest number of updates since the token's weights.
        """
        tokens, sequences = max(1.0, self.tokens), max(1.0, self.sequences)
        return {
            "clip_fraction": self.outside / tokens,
            "k1": self.k1 / tokens,
            "k3": self.k3 / tokens,
            "ess": self._ess(self.ratio, self.ratio_squared),
            "weight_ess": self._ess(self.weight, self.weight_squared),
            "weights_bounded": self.weights_bounded,
            "chi2": self.ratio_squared / tokens - 1 if self.tokens else 0.0,
            "truncated": self.truncated / tokens,
            "vetoed": self.vetoed / sequences,
            "bounded": self.bounded / tokens,
            "staleness": self.staleness / tokens,
            "stalest": self.stalest,
        }


@torch.no_grad()
def observe(
    log_ratio_BT: Tensor,
    mask_BT: Tensor,
    weights: Weights | None = None,
    clipped_BT: Tensor | None = None,
    age_BT: Tensor | None = None,
) -> RatioSums:
    """The sums of one micro-batch, of the token ratio of the policy to the sampler.

    Args:
        log_ratio_BT: log policy - log sampler of each sampled token; bounded to +-20 here as for a weight.
        weights: those that the loss uses, for the truncated and vetoed shares.
        clipped_BT: tokens that a clipped surrogate does not train on.
        age_BT: updates of the policy since the weights that drew each token.

    Raises GuardError for a trained token whose log-ratio is not a number.
    """
    mask_BT = mask_BT.bool()
    level = ratio_log_BT(log_ratio_BT.double(), mask_BT, Level.TOKEN)
    log_ratio = level.values_BT[mask_BT]
    ratio = log_ratio.exp()
    ages = age_BT[mask_BT].double() if age_BT is not None else ratio.new_zeros(0)
    return RatioSums(
        tokens=float(ratio.numel()),
        sequences=float(mask_BT.any(1).sum()),
        k1=float(-log_ratio.sum()),
        k3=float((log_ratio.expm1() - log_ratio).sum()),
        ratio=float(ratio.sum()),
        ratio_squared=float(ratio.square().sum()),
        bounded=float(level.bounded),
        weight=float(weights.values_BT[mask_BT].double().sum()) if weights else 0.0,
        weight_squared=float(weights.values_BT[mask_BT].double().square().sum()) if weights else 0.0,
        weights_bounded=float(weights.bounded) if weights else 0.0,
        truncated=float(weights.truncated_BT[mask_BT].sum()) if weights else 0.0,
        vetoed=float((weights.vetoed_B & mask_BT.any(1)).sum()) if weights else 0.0,
        outside=float(clipped_BT[mask_BT].sum()) if clipped_BT is not None else 0.0,
        staleness=float(ages.sum()),
        stalest=float(ages.max()) if ages.numel() else 0.0,
    )
