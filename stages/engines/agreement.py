"""Whether the engine that samples holds the trainer's weights: told by the log-probs of the same tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stages.errors import PosttrainError
from stages.estimators.losses import masked_sum


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
