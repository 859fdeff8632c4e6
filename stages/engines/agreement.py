"""Whether the engine that samples holds the trainer's weights: told by the log-probs of the same tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stages.engines.batch import TokenBatch
from stages.errors import PosttrainError
from stages.estimators.distribution import Distribution
from stages.estimators.losses import masked_sum

POSITIONS_AT_ONCE = 512


@dataclass
class Agreement:
    """Sums over the tokens of one batch; micro-batches add to it as they pass through a loss."""

    gap_sum: float = 0.0
    tokens: int = 0

    @torch.no_grad()
    def add(self, logprobs_BT: Tensor, recorded_BT: Tensor, mask_BT: Tensor) -> None:
        """`recorded_BT` are the engine's, of the distribution that sampled; `logprobs_BT` the trainer's."""
        self.gap_sum += float(masked_sum((logprobs_BT - recorded_BT).abs(), mask_BT))
        self.tokens += int(mask_BT.sum())

    @property
    def gap(self) -> float:
        """Mean |trainer - engine| log-prob a token, in nats."""
        return self.gap_sum / max(1, self.tokens)

    def require(self, limit: float, step: int) -> None:
        """Raises PosttrainError if the gap exceeds `limit` or is not a number."""
        if not self.gap <= limit:
            raise PosttrainError(
                f"engine and trainer disagree by {self.gap:.2e} a token at step {step} (limit {limit:.0e}): "
                "the engine does not hold the trainer's weights"
            )


@torch.no_grad()
def recomputed_logprobs_BT(sampler: Distribution, batch: TokenBatch) -> Tensor:
    """What a distribution says of the batch's targets, 0 where the mask is false, a block at a time."""
    logprobs_M = torch.zeros(batch.mask_BT.numel(), device=batch.mask_BT.device)
    target_M = batch.target_BT.reshape(-1)
    for places_N in batch.mask_BT.reshape(-1).nonzero().squeeze(1).split(POSITIONS_AT_ONCE):
        logprobs_NV = sampler.logprobs_NV(places_N)
        logprobs_M[places_N] = logprobs_NV.gather(1, target_M[places_N].unsqueeze(1)).squeeze(1).float()
    return logprobs_M.view(batch.mask_BT.shape)
