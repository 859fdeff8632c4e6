"""Cross-entropy as the trainer takes it: pre-training, SFT and everything else that imitates tokens."""

from torch import Tensor

from stages.engines.batch import TokenBatch, target_logprobs_BT
from stages.engines.protocol import MicroBatchLoss
from stages.estimators.losses import token_mean


def cross_entropy(batch: TokenBatch, shares: list[float]) -> MicroBatchLoss:
    """The mean negative log-probability of the batch's targets, in nats.

    Each micro-batch's share is appended to `shares`; their sum is the batch's loss.
    """
    count = batch.target_count

    def loss(logits_BTV: Tensor, micro: TokenBatch) -> Tensor:
        share = token_mean(-target_logprobs_BT(logits_BTV, micro), micro.mask_BT, count)
        shares.append(float(share.detach()))
        return share

    return loss
