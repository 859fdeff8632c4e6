"""The policy gradient with a detached importance weight."""

import torch
from torch import Tensor

from stages.errors import GuardError


def policy_gradient_BT(
    logprobs_BT: Tensor, weights_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor
) -> Tensor:
    """-w A log p per token, 0 where the mask is false. Gradient: -A w (gradient of log p).

    With the exact sequence ratio as weight (`Level.SEQUENCE`, `Unregularised`), summed over a sequence's
    tokens, the expectation over the sampler is the true gradient of -E_p[A]. With the exact token ratio it is
    -C_tok of methods.md 3(B3): the prefixes are still the sampler's. With the token ratio clipped it is CISPO
    (arXiv 2506.13585, Eq. 4), whose clipped tokens keep their gradient, unlike PPO's.

    Args:
        logprobs_BT: log-probs of the sampled tokens under the policy; the only argument differentiated.
        weights_BT: f(policy / sampler), see `stages.estimators.ratios.weights_BT`.
        advantages_BT: [B, T], or [B, 1] for one advantage per sequence.

    Raises GuardError for weights or advantages that require a gradient.
    """
    require_constant(weights_BT, advantages_BT)
    mask_BT = mask_BT.bool()
    zero = logprobs_BT.new_zeros(())
    factor_BT = weights_BT * advantages_BT
    return torch.where(mask_BT, -factor_BT, zero) * logprobs_BT.where(mask_BT, zero)


def require_constant(weights_BT: Tensor, advantages_BT: Tensor) -> None:
    """GuardError where one would be differentiated too: the expectation would be another gradient's."""
    for name, given in [("importance weights", weights_BT), ("advantages", advantages_BT)]:
        if given.requires_grad:
            raise GuardError(
                f"the {name} of a policy gradient require a gradient: compute them from detached "
                "log-probs, or detach them"
            )
