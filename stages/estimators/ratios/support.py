"""The trainer's distribution over the support that a filtered sampler drew from.

top-p and top-k renormalise: without the same support, each ratio carries the log of the mass that was kept.
"""

import torch
from torch import Tensor


def on_support_NV(logits_NV: Tensor, support_ids_NK: Tensor, support_logprobs_NK: Tensor) -> Tensor:
    """The logits with -inf outside the sampler's support, so that a softmax renormalises over it.

    Args:
        support_ids_NK: token ids; where their log-prob is -inf they fill up the row and are no part of it.
    """
    # Not a scatter of booleans: a filler may repeat the id of a token that is in the support.
    counts_NV = torch.zeros_like(logits_NV).scatter_add(
        -1, support_ids_NK, support_logprobs_NK.isfinite().to(logits_NV.dtype)
    )
    return logits_NV.masked_fill(counts_NV == 0, -torch.inf)
