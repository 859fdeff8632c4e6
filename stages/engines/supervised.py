"""Cross-entropy as the trainer takes it: pre-training, SFT and everything else that imitates tokens."""

from torch import Tensor

from stages.engines.batch import TokenBatch
from stages.engines.protocol import Forward, MicroBatchLoss
from stages.estimators.blockwise import target_logprobs_BT
from stages.estimators.losses import BatchCounts, aggregate
from stages.estimators.params import TokenMean


def cross_entropy(batch: TokenBatch, shares: list[float]) -> MicroBatchLoss:
    """The mean negative log-probability of the batch's targets, in nats.

    Each micro-batch's share is appended to `shares`; their sum is the batch's loss.
    """
    counts = BatchCounts(tokens=batch.target_count, sequences=len(batch.rows_B))

    def loss(forward: Forward, micro: TokenBatch) -> Tensor:
        nll_BT = -target_logprobs_BT(forward.logits_BTV, micro.target_BT, micro.mask_BT)
        share = aggregate(nll_BT, micro.mask_BT, TokenMean(), counts)
        shares.append(float(share.detach()))
        return share

    return loss
