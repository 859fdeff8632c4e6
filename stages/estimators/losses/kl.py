"""KL to a reference policy: three estimates of its value, two losses named by their gradient.

The value of an estimator and its gradient as a loss are two things. For a token sampled from the policy p,
k1, k2 and k3 (Schulman, "Approximating KL divergence", 2020) estimate the value of KL(p || ref), k2 with a
bias. As losses, k1 has expected gradient 0, k2 that of KL(p || ref), and k3 that of KL(ref || p).
"""

from typing import NoReturn

import torch
from torch import Tensor

from stages.errors import GuardError
from stages.estimators.params import WRONG_KL


@torch.no_grad()
def k1_BT(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """log p - log ref: an unbiased estimate of KL(p || ref) in nats, of either sign. Detached: a metric."""
    return logprobs_BT - reference_BT


@torch.no_grad()
def k2_BT(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """(log p - log ref)^2 / 2: a biased estimate of KL(p || ref), of low variance. Detached: a metric."""
    return (logprobs_BT - reference_BT).square() / 2


@torch.no_grad()
def k3_BT(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """ref / p - 1 - log(ref / p): an unbiased estimate of KL(p || ref), never negative. Detached."""
    log_ratio_BT = reference_BT - logprobs_BT
    return log_ratio_BT.expm1() - log_ratio_BT


def reverse_kl_loss_BT(logprobs_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(log p - log ref)^2 / 2 per token, 0 where the mask is false: its gradient is the reverse KL's.

    On samples of p the expected gradient is that of the sum over positions of KL(p(.|h) || ref(.|h)), the
    prefixes h being those of p and held fixed. It is not the gradient of the KL of whole sequences, in which
    a token also answers for the KL of the prefixes that it leads to; for one token the two are the same.
    On samples of another policy, multiply by the detached token ratio.

    Args:
        logprobs_BT: log-probs of the sampled tokens under the policy; the only argument differentiated.
        reference_BT: under the reference. Both at the temperature that sampled.
    """
    return _log_ratio_BT(logprobs_BT, reference_BT, mask_BT).square() / 2


def forward_kl_loss_BT(logprobs_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """ref / p - 1 - log(ref / p) per token, 0 where the mask is false: its gradient is the forward KL's.

    On samples of p the expected gradient is that of the sum over positions of KL(ref(.|h) || p(.|h)), with
    the prefixes h those of p and held fixed. It is GRPO's penalty (arXiv 2402.03300, Eq. 4), which that paper
    takes for the reverse KL's. On samples of another policy, multiply by the detached token ratio.
    """
    log_ratio_BT = -_log_ratio_BT(logprobs_BT, reference_BT, mask_BT)
    return log_ratio_BT.expm1() - log_ratio_BT


def kl_loss_BT(kind: str, logprobs_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The loss of `KlPenalty.kind`; raises GuardError for an estimator that is named by its value."""
    match kind:
        case "reverse_kl":
            return reverse_kl_loss_BT(logprobs_BT, reference_BT, mask_BT)
        case "forward_kl":
            return forward_kl_loss_BT(logprobs_BT, reference_BT, mask_BT)
    refuse_as_loss(kind)


def refuse_as_loss(name: str) -> NoReturn:
    """Raises GuardError with the gradient that k1, k2 or k3 would have as a loss."""
    wrong = WRONG_KL.get(name, f"{name} is not a KL that can be minimised here")
    raise GuardError(f"{wrong}; take reverse_kl, or forward_kl if you mean that one")


def _log_ratio_BT(logprobs_BT: Tensor, reference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log p - log ref, masked before any function of it, whose slope at a placeholder may be no number."""
    log_ratio_BT = logprobs_BT - reference_BT.detach()
    return log_ratio_BT.where(mask_BT.bool(), log_ratio_BT.new_zeros(()))
