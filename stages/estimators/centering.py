"""Score centering (arXiv 2609.20807): subtract from a weighted score its mean under the sampler.

At a prefix with trainer p, sampler q and a detached weight w = f(p / q), the mean score is
m = sum_v q_v f(p_v / q_v) grad log p_v. It is zero for f(r) = r, or for p = q; otherwise every reward's level
pulls p along it, and no baseline that is constant over the group removes what depends on the prefix.
The loss -A (sg(w) log p_y - correction) has the gradient -A (w grad log p_y - m) at every sample.
The sampler q is what really drew the token: its temperature, its support, its weights at that token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stages.estimators.blockwise import at_positions, per_position, scaled
from stages.estimators.distribution import Distribution, TopHead
from stages.estimators.losses.policy_gradient import require_constant
from stages.estimators.params import RegulariserChoice
from stages.estimators.ratios.regularise import weighted_mass_NV

TAIL_FLOOR = 1e-6
"""Least mass outside a head, of either policy (appendix A of the paper): bounds their ratio by a million."""


@dataclass(frozen=True)
class Centred:
    """Of one batch, all [B, T] and 0 outside the mask; the first two are differentiable in the logits.

    logprobs_BT: of the sampled tokens. corrections_BT: the scalar whose gradient is m. drift_BT: half the L1
    norm of m in the logits at the temperature, what centering removes here (`drift_N`). head_mass_BT: the
    sampler's mass in the recorded head, 1 with the whole vocabulary; warn below 0.99. floored_BT: 1 where a
    tail mass was raised to TAIL_FLOOR.
    """

    logprobs_BT: Tensor
    corrections_BT: Tensor
    drift_BT: Tensor
    head_mass_BT: Tensor
    floored_BT: Tensor


def centred_logprobs(
    logits_BTV: Tensor,
    target_BT: Tensor,
    mask_BT: Tensor,
    sampler: Distribution | TopHead,
    regulariser: RegulariserChoice,
    temperature: float | Tensor = 1.0,
) -> Centred:
    """Log-probs of the targets and their correction terms, from one pass over the trainer's logits.

    `temperature` is the trainer's, equal to the sampler's: a number, or [B] for one of each row.
    """
    targets = target_BT.reshape(-1)
    scale = per_position(temperature, mask_BT)

    if isinstance(sampler, TopHead):

        def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
            ids_NK, logq_NK = sampler.at(places_N)
            scaled_NV = scaled(logits_NV, scale, places_N)
            normaliser_N1 = scaled_NV.logsumexp(-1, keepdim=True)
            logp_NK = scaled_NV.gather(-1, ids_NK) - normaliser_N1
            logprob_N1 = scaled_NV.gather(-1, targets[places_N].unsqueeze(-1)) - normaliser_N1
            correction_N, moved_N, floored_N = head_correction_N(logp_NK, logq_NK, regulariser)
            return logprob_N1.squeeze(-1), correction_N, moved_N, head_mass_N(logq_NK), floored_N

    else:

        def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
            logp_NV = scaled(logits_NV, scale, places_N).log_softmax(-1)
            correction_N, moved_N = full_correction_N(logp_NV, sampler.logprobs_NV(places_N), regulariser)
            logprob_N = logp_NV.gather(-1, targets[places_N].unsqueeze(-1)).squeeze(-1)
            return logprob_N, correction_N, moved_N, torch.ones_like(moved_N), torch.zeros_like(moved_N)

    logprobs, corrections, *constants = at_positions(function, logits_BTV, mask_BT)
    return Centred(logprobs, corrections, *(constant.detach() for constant in constants))


def centred_policy_gradient_BT(
    logprobs_BT: Tensor, weights_BT: Tensor, corrections_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor
) -> Tensor:
    """-A (w log p - correction) per token, 0 where the mask is false. Gradient: -A (w s - m).

    With the corrections of f the expectation over the sampler is -C_tok = -sum_t E_h Cov_q(A, w_t s_t | h_t)
    of methods.md 3(B3), whatever is added to A that is known before token t.

    Args:
        logprobs_BT, corrections_BT: of `centred_logprobs`; the only arguments differentiated.
        weights_BT: f(policy / sampler) at token level of this very forward, f that of the corrections.
        advantages_BT: [B, T], or [B, 1] for one advantage per sequence.

    Raises GuardError for weights or advantages that require a gradient.
    """
    require_constant(weights_BT, advantages_BT)
    mask_BT = mask_BT.bool()
    zero = logprobs_BT.new_zeros(())
    advantages_BT = torch.where(mask_BT, advantages_BT, zero)
    weights_BT = torch.where(mask_BT, weights_BT, zero)
    centred_BT = weights_BT * logprobs_BT.where(mask_BT, zero) - corrections_BT.where(mask_BT, zero)
    return -advantages_BT * centred_BT


def full_correction_N(
    logp_NV: Tensor, logq_NV: Tensor, regulariser: RegulariserChoice
) -> tuple[Tensor, Tensor]:
    """sum_v sg(q_v f(p_v / q_v)) log p_v per position, over the sampler's support, and the drift (detached).

    The gradient of the first is m. `logp_NV`: the trainer's log-probs, differentiated. `logq_NV`: the
    sampler's, -inf outside its support.
    """
    mass_NV = weighted_mass_NV(logp_NV, logq_NV, regulariser)
    return _weighted_sum_N(mass_NV, logp_NV), drift_N(mass_NV, logp_NV.detach().exp())


def head_correction_N(
    logp_NK: Tensor, logq_NK: Tensor, regulariser: RegulariserChoice
) -> tuple[Tensor, Tensor, Tensor]:
    """The correction with the sampler known on its head only, the drift, and 1 where a tail was floored.

    Outside the head the sampler is modelled as proportional to the trainer, q = rho p with
    rho = (1 - Q_H) / (1 - P_H). There q f(p / q) = alpha p with alpha = rho f(1 / rho), and as
    sum_v p_v grad log p_v = 0 the whole is sum_{v in H} sg(q_v f(p_v / q_v) - alpha p_v) log p_v.

    `logp_NK`: the trainer's log-probs of the head's tokens, under its whole vocabulary; differentiated.
    `logq_NK`: the sampler's, -inf where there is no entry.
    """
    with torch.no_grad():
        p_NK = logp_NK.exp().where(logq_NK > float("-inf"), logp_NK.new_zeros(()))
        tail_p_N = 1 - p_NK.sum(-1)
        tail_q_N = 1 - head_mass_N(logq_NK)
        floored_N = (tail_p_N < TAIL_FLOOR) | (tail_q_N < TAIL_FLOOR)
        log_rho_N1 = (tail_q_N.clamp(min=TAIL_FLOOR) / tail_p_N.clamp(min=TAIL_FLOOR)).log().unsqueeze(-1)
        alpha_N1 = weighted_mass_NV(torch.zeros_like(log_rho_N1), log_rho_N1, regulariser)
        mass_NK = weighted_mass_NV(logp_NK, logq_NK, regulariser) - alpha_N1 * p_NK
        tail_N1 = tail_p_N.clamp(min=0).unsqueeze(-1)
        moved_N = drift_N(torch.cat([mass_NK, torch.zeros_like(tail_N1)], -1), torch.cat([p_NK, tail_N1], -1))
    return _weighted_sum_N(mass_NK, logp_NK), moved_N, floored_N.to(logp_NK.dtype)


@torch.no_grad()
def drift_N(mass_NV: Tensor, p_NV: Tensor) -> Tensor:
    """0.5 sum_v |mass_v - p_v sum_u mass_u|: half the L1 norm of sum_v mass_v grad log p_v in the logits.

    0 where the mass is proportional to p: no drift, as for f(r) = r on the whole vocabulary and for p = q.
    A head's tail is one entry: the gradient has the same sign at all of its tokens, so nothing cancels.
    """
    total_N1 = mass_NV.sum(-1, keepdim=True)
    return torch.addcmul(mass_NV, p_NV, total_N1, value=-1).abs_().sum(-1) / 2  # of one temporary


def head_mass_N(logq_NK: Tensor) -> Tensor:
    """The sampler's probability of its head, at each position."""
    return logq_NK.exp().sum(-1)


def _weighted_sum_N(mass_NV: Tensor, logp_NV: Tensor) -> Tensor:
    """sum_v mass_v log p_v, where an entry without mass is 0 also if its log p is -inf."""
    return (mass_NV * logp_NV.where(mass_NV != 0, logp_NV.new_zeros(()))).sum(-1)
