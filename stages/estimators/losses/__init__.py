"""Losses per token, each exactly 0 where masked, and their aggregation over a whole batch."""

from stages.estimators.losses.aggregate import BatchCounts, aggregate, masked_sum, sequence_mean_B
from stages.estimators.losses.kl import (
    forward_kl_loss_BT,
    k1_BT,
    k2_BT,
    k3_BT,
    kl_loss_BT,
    refuse_as_loss,
    reverse_kl_loss_BT,
)
from stages.estimators.losses.policy_gradient import policy_gradient_BT
from stages.estimators.losses.surrogate import clipped_BT, clipped_surrogate_BT

__all__ = [
    "BatchCounts",
    "aggregate",
    "clipped_BT",
    "clipped_surrogate_BT",
    "forward_kl_loss_BT",
    "k1_BT",
    "k2_BT",
    "k3_BT",
    "kl_loss_BT",
    "masked_sum",
    "policy_gradient_BT",
    "refuse_as_loss",
    "reverse_kl_loss_BT",
    "sequence_mean_B",
]
