"""How the losses of a batch's tokens become one number.

Every denominator counts the whole batch, not the micro-batch, so that the sum over micro-batches has the same
gradient for every split and order of the rows (verl, TRL and open-instruct have each got this wrong once).
"""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from stages.errors import GuardError
from stages.estimators.params import AggregationChoice, FixedLength, SequenceMean, TokenMean


@dataclass(frozen=True)
class BatchCounts:
    """What a whole batch trains on: its trained tokens, and its rows that have any."""

    tokens: int
    sequences: int

    @classmethod
    def of(cls, mask_BT: Tensor) -> Self:
        """Of one mask; a row without a trained token is not a sequence."""
        mask_BT = mask_BT.bool()
        return cls(int(mask_BT.sum()), int(mask_BT.any(1).sum()))

    def __add__(self, other: "BatchCounts") -> "BatchCounts":
        return BatchCounts(self.tokens + other.tokens, self.sequences + other.sequences)


def masked_sum(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The sum over positions where the mask is true (or non-zero); the others contribute exactly nothing."""
    return loss_BT.where(mask_BT.bool(), loss_BT.new_zeros(())).sum()


def sequence_mean_B(loss_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean of each row over its own trained tokens; 0 for a row without any."""
    kept_BT = loss_BT.where(mask_BT.bool(), loss_BT.new_zeros(()))
    return kept_BT.sum(-1) / mask_BT.bool().sum(-1).clamp(min=1)


def aggregate(
    loss_BT: Tensor, mask_BT: Tensor, aggregation: AggregationChoice, counts: BatchCounts
) -> Tensor:
    """The micro-batch's share of the batch's loss; shares of a batch's micro-batches add up to it.

    token_mean: sum over tokens / tokens of the batch (DAPO, arXiv 2503.14476).
    sequence_mean: sum over rows of the row's mean / sequences of the batch (GRPO, arXiv 2402.03300; GSPO).
    fixed_length: sum over tokens / (sequences of the batch x length) (Dr. GRPO, arXiv 2503.20783).

    Raises GuardError when the batch trains on nothing.
    """
    if counts.tokens < 1 or counts.sequences < 1:
        raise GuardError(
            "the batch has no trainable token: its mask is empty, so there is nothing to learn from"
        )
    match aggregation:
        case TokenMean():
            return masked_sum(loss_BT, mask_BT) / counts.tokens
        case SequenceMean():
            return sequence_mean_B(loss_BT, mask_BT).sum() / counts.sequences
        case FixedLength(length=length):
            return masked_sum(loss_BT, mask_BT) / (counts.sequences * length)
