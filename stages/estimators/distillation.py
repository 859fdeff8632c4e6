"""Distillation from a teacher: every form by the expected gradient that it has.

On-policy (the student's own samples), all four forms have the gradient of sum_t KL(student || teacher) at the
sampled prefixes, prefixes held fixed (top-k: of the coarse-grained KL). That is not the gradient of the KL
between the two distributions over whole sequences, which also moves the prefixes (arXiv 2306.08543).
A sampled log-ratio that is itself differentiated has expected gradient zero, so it is never a loss here.
Off-policy (the teacher's samples) the forward KL has exactly the gradient of the KL between sequences.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stages.errors import GuardError
from stages.estimators.blockwise import at_positions, per_position, scaled, target_logprobs_BT
from stages.estimators.distribution import Distribution


class SampledTerms(NamedTuple):
    """Both [B, T], 0 outside the mask: log-probs of the sampled tokens, and detached advantages for them.

    The loss is a policy gradient, -advantage x log-prob.
    """

    logprobs_BT: Tensor
    advantages_BT: Tensor


def reverse_kl_BT(
    logits_BTV: Tensor, mask_BT: Tensor, teacher: Distribution, temperature: float | Tensor = 1.0
) -> Tensor:
    """KL(student || teacher) per position, in nats, over the full vocabulary; differentiable in the logits.

    `temperature` is the student's: a number, or [B] for one of each row. Infinite where the student leaves
    the teacher's support.
    """
    scale = per_position(temperature, mask_BT)

    def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
        return (reverse_kl_N(scaled(logits_NV, scale, places_N), teacher.logprobs_NV(places_N)),)

    return at_positions(function, logits_BTV, mask_BT)[0]


def top_k_reverse_kl_BT(
    logits_BTV: Tensor, mask_BT: Tensor, teacher: Distribution, k: int, temperature: float | Tensor = 1.0
) -> Tensor:
    """KL between student and teacher over the student's k most likely tokens and one bucket for the rest.

    A lower bound of the full KL, equal at k = V and where the two are proportional outside the head. The
    gradient is that of the coarse-grained KL with the head held fixed. Raises GuardError unless 1 <= k <= V.
    """
    if not 1 <= k <= logits_BTV.shape[-1]:
        raise GuardError(
            f"the {k} most likely of {logits_BTV.shape[-1]} tokens cannot be taken: set k to at most the "
            f"vocabulary's size, or take the full vocabulary"
        )
    scale = per_position(temperature, mask_BT)

    def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
        return (top_k_reverse_kl_N(scaled(logits_NV, scale, places_N), teacher.logprobs_NV(places_N), k),)

    return at_positions(function, logits_BTV, mask_BT)[0]


def forward_kl_BT(
    logits_BTV: Tensor, mask_BT: Tensor, teacher: Distribution, temperature: float | Tensor = 1.0
) -> Tensor:
    """KL(teacher || student) per position, in nats: the gradient of the cross-entropy on soft targets.

    For the teacher's own samples, or any others: it asks nothing of who sampled the prefix.
    """
    scale = per_position(temperature, mask_BT)

    def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
        return (forward_kl_N(scaled(logits_NV, scale, places_N), teacher.logprobs_NV(places_N)),)

    return at_positions(function, logits_BTV, mask_BT)[0]


def sampled_terms(
    logits_BTV: Tensor,
    target_BT: Tensor,
    mask_BT: Tensor,
    teacher: Distribution,
    temperature: float | Tensor = 1.0,
) -> SampledTerms:
    """d = log teacher - log student at the sampled token as the advantage: the reverse KL in expectation."""
    return _terms(logits_BTV, target_BT, mask_BT, teacher, temperature, baseline=False)


def variance_reduced_terms(
    logits_BTV: Tensor,
    target_BT: Tensor,
    mask_BT: Tensor,
    teacher: Distribution,
    temperature: float | Tensor = 1.0,
) -> SampledTerms:
    """d minus its closed-form mean -KL(student || teacher) at the prefix (arXiv 2605.07865).

    The same expected gradient, because the baseline does not depend on the token. The advantage has mean 0 at
    every prefix and its mean square falls by KL^2. The gradient varies less where the teacher is near the
    student, as a rule and not always: more where the teacher raises tokens that the student rarely takes.
    """
    return _terms(logits_BTV, target_BT, mask_BT, teacher, temperature, baseline=True)


def sampled_advantage_BT(student_logprobs_BT: Tensor, teacher_logprobs_BT: Tensor) -> Tensor:
    """d = log teacher - log student at the sampled tokens, detached: where a teacher only scores samples."""
    return (teacher_logprobs_BT - student_logprobs_BT).detach()


def reverse_kl_N(logits_NV: Tensor, teacher_logprobs_NV: Tensor) -> Tensor:
    """sum_v p_v sg(log p_v - log teacher_v).

    The log-ratio is detached: as sum_v grad p_v = 0, the gradient is sum_v d_v grad p_v all the same, and
    exactly zero (not 1e-17) where teacher and student agree.
    """
    log_ratio_NV = _log_ratio_NV(logits_NV.detach().log_softmax(-1), teacher_logprobs_NV)
    return (logits_NV.softmax(-1) * log_ratio_NV).sum(-1)


def top_k_reverse_kl_N(logits_NV: Tensor, teacher_logprobs_NV: Tensor, k: int) -> Tensor:
    """As `reverse_kl_N`, with all but the student's k most likely tokens taken as one."""
    p_NV = logits_NV.softmax(-1)
    with torch.no_grad():
        logp_NV = logits_NV.log_softmax(-1)
        head_NK = logp_NV.topk(k, dim=-1).indices
        log_ratio_NK = _log_ratio_NV(logp_NV, teacher_logprobs_NV).gather(-1, head_NK)
        tail_ratio_N = _log_ratio_NV(_log_tail_N(logp_NV, head_NK), _log_tail_N(teacher_logprobs_NV, head_NK))
    # The tail is summed, not 1 - head: that would lose small tails to rounding.
    tail_N = p_NV.scatter(-1, head_NK, 0.0).sum(-1)
    return (p_NV.gather(-1, head_NK) * log_ratio_NK).sum(-1) + tail_N * tail_ratio_N


def forward_kl_N(logits_NV: Tensor, teacher_logprobs_NV: Tensor) -> Tensor:
    """sum_v teacher_v (log teacher_v - log p_v); the gradient is that of -sum_v teacher_v log p_v."""
    gap_NV = teacher_logprobs_NV - logits_NV.log_softmax(-1)
    gap_NV = gap_NV.masked_fill(teacher_logprobs_NV == float("-inf"), 0.0)
    return (teacher_logprobs_NV.exp() * gap_NV).sum(-1)


def _log_ratio_NV(logp_NV: Tensor, teacher_logprobs_NV: Tensor) -> Tensor:
    """log p - log teacher, 0 where the student has no mass: p log p is 0 there."""
    return (logp_NV - teacher_logprobs_NV).masked_fill(logp_NV == float("-inf"), 0.0)


def _log_tail_N(logprobs_NV: Tensor, head_NK: Tensor) -> Tensor:
    """Log of the mass outside the head, -inf where nothing is."""
    return logprobs_NV.exp().scatter(-1, head_NK, 0.0).sum(-1).log()


def _terms(
    logits_BTV: Tensor,
    target_BT: Tensor,
    mask_BT: Tensor,
    teacher: Distribution,
    temperature: float | Tensor,
    baseline: bool,
) -> SampledTerms:
    targets = target_BT.reshape(-1)
    scale = per_position(temperature, mask_BT)

    def advantage(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
        logp_NV = scaled(logits_NV, scale, places_N).log_softmax(-1)
        log_ratio_NV = _log_ratio_NV(logp_NV, teacher.logprobs_NV(places_N))
        advantage_N = -log_ratio_NV.gather(-1, targets[places_N].unsqueeze(-1)).squeeze(-1)
        return (advantage_N + (logp_NV.exp() * log_ratio_NV).sum(-1) if baseline else advantage_N,)

    with torch.no_grad():  # apart from the log-probs: the teacher is then not asked again backward
        (advantages_BT,) = at_positions(advantage, logits_BTV, mask_BT)
    return SampledTerms(target_logprobs_BT(logits_BTV, target_BT, mask_BT, temperature), advantages_BT)
