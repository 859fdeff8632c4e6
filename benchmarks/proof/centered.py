"""Score centering on enumerable policies: the expected gradients of the product's functions, and the golden
side, written from probabilities alone (methods.md 3(b)): what a weight is, what a covariance is.

A gradient is a list of blocks, one [V ** t, V] for each position t; "later positions" are the blocks after
the first. Prefixes: H = V ** t.
"""

import torch
from torch import Tensor

from benchmarks.proof.tabular import Tabular
from stages.estimators.centering import Centred, centred_logprobs, centred_policy_gradient_BT
from stages.estimators.distribution import FromLogits, TopHead
from stages.estimators.params import (
    Clip,
    Mask,
    RegulariserChoice,
    Truncate,
    Uncorrected,
    Unregularised,
)

EXACT = Unregularised()
DRIFTING: list[RegulariserChoice] = [
    Uncorrected(),
    Truncate(high=1.5),
    Truncate(high=1.0),
    Clip(low=0.8, high=1.2),
    Mask(low=0.5, high=2),
]


def policies(seed: int, vocabulary: int = 4, length: int = 3) -> tuple[Tabular, Tabular]:
    """A trainer, and a sampler far enough from it that every regulariser bites."""
    trainer = Tabular.random(vocabulary, length, seed)
    return trainer, trainer.near(seed + 1, 0.9)


def rewards_S(seed: int, trainer: Tabular) -> Tensor:
    """One for each sequence, normal."""
    drawn = torch.Generator().manual_seed(seed + 2)
    return torch.randn(len(trainer.tokens_ST), dtype=torch.float64, generator=drawn)


def mean_reward(sampler: Tabular, reward_S: Tensor) -> Tensor:
    return (sampler.probability_S() * reward_S).sum()


def weight(ratio: Tensor, regulariser: RegulariserChoice) -> Tensor:
    """f, as its definition reads."""
    match regulariser:
        case Uncorrected():
            return torch.ones_like(ratio)
        case Truncate(high=high):
            return torch.minimum(ratio, torch.full_like(ratio, high))
        case Clip(low=low, high=high):
            return ratio.clamp(low, high)
        case Mask(low=low, high=high):
            return torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)
        case Unregularised():
            return ratio


def weights_ST(trainer: Tabular, sampler: Tabular, regulariser: RegulariserChoice) -> Tensor:
    """Of every token of every sequence, detached."""
    return weight((trainer.logprobs_ST() - sampler.logprobs_ST()).exp().detach(), regulariser)


def centred(trainer: Tabular, sampler: Tabular, regulariser: RegulariserChoice) -> Centred:
    """The product's terms with the sampler's whole vocabulary."""
    law = FromLogits(sampler.logits_STV())
    return centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, trainer.mask_ST, law, regulariser)


def top_head(logprobs_STV: Tensor, k: int) -> TopHead:
    """What a sampler with these log-probs records."""
    logprobs_STK, ids_STK = logprobs_STV.detach().topk(k, dim=-1)
    return TopHead(ids_STK, logprobs_STK)


def loss_S(
    trainer: Tabular,
    sampler: Tabular,
    advantages_S: Tensor,
    regulariser: RegulariserChoice,
    centring: bool = True,
) -> Tensor:
    """The product's loss of every sequence, its tokens summed."""
    terms = centred(trainer, sampler, regulariser)
    corrections_ST = terms.corrections_BT if centring else torch.zeros_like(terms.corrections_BT)
    return centred_policy_gradient_BT(
        terms.logprobs_BT,
        weights_ST(trainer, sampler, regulariser),
        corrections_ST,
        advantages_S[:, None],
        trainer.mask_ST,
    ).sum(1)


def gradient(
    trainer: Tabular,
    sampler: Tabular,
    advantages_S: Tensor,
    regulariser: RegulariserChoice,
    centring: bool = True,
) -> list[Tensor]:
    """Of the product's expected loss, by position."""
    return trainer.expected_gradient(loss_S(trainer, sampler, advantages_S, regulariser, centring), sampler)


def token_covariance(
    trainer: Tabular, sampler: Tabular, reward_S: Tensor, regulariser: RegulariserChoice
) -> list[Tensor]:
    """C_tok = sum_t E_h Cov_q(R, w_t s_t | h_t), by position."""
    blocks = []
    for t in range(trainer.length):
        mass_HV, value_HV = _by_prefix(trainer, sampler, reward_S, t)
        mean_H1 = value_HV.sum(1, keepdim=True) / mass_HV.sum(1, keepdim=True)
        blocks.append(_mean_score_HV(trainer, sampler, value_HV - mass_HV * mean_H1, regulariser, t))
    return blocks


def marginal_covariance(
    trainer: Tabular, sampler: Tabular, reward_S: Tensor, regulariser: RegulariserChoice
) -> list[Tensor]:
    """C_mrg = sum_t Cov_q(R, w_t s_t), by position: what a reward baseline alone gives."""
    blocks = []
    for t in range(trainer.length):
        mass_HV, value_HV = _by_prefix(trainer, sampler, reward_S, t)
        centred_HV = value_HV - mass_HV * mean_reward(sampler, reward_S)
        blocks.append(_mean_score_HV(trainer, sampler, centred_HV, regulariser, t))
    return blocks


def drift(trainer: Tabular, sampler: Tabular, regulariser: RegulariserChoice) -> list[Tensor]:
    """m_t(h) = sum_v q_v f(p_v / q_v) grad log p_v of every prefix, by position."""
    return [
        _mean_score_HV(trainer, sampler, sampler.table[t].detach().softmax(-1), regulariser, t)
        for t in range(trainer.length)
    ]


def _by_prefix(trainer: Tabular, sampler: Tabular, reward_S: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """Probability of every prefix of t tokens and its next token, and the reward's part of it."""
    shape = (trainer.vocabulary**t, trainer.vocabulary, -1)
    probability_S = sampler.probability_S()
    return probability_S.view(shape).sum(-1), (probability_S * reward_S).view(shape).sum(-1)


def _mean_score_HV(
    trainer: Tabular, sampler: Tabular, factor_HV: Tensor, regulariser: RegulariserChoice, t: int
) -> Tensor:
    """sum_v factor_v w_v (e_v - p): the score of a softmax written out."""
    p_HV = trainer.table[t].detach().softmax(-1)
    weighted_HV = factor_HV * weight(p_HV / sampler.table[t].detach().softmax(-1), regulariser)
    return weighted_HV - p_HV * weighted_HV.sum(1, keepdim=True)
