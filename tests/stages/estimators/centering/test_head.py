"""Score centering by a recorded head of the sampler: oracles 3.1 and 3.8 of methods.md."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.centered import (
    DRIFTING,
    EXACT,
    centred,
    policies,
    rewards_S,
    top_head,
    weight,
    weights_ST,
)
from benchmarks.proof.tabular import Tabular
from stages.estimators.centering import (
    TAIL_FLOOR,
    centred_logprobs,
    head_correction_N,
    head_mass_N,
)
from stages.estimators.distribution import TopHead
from stages.estimators.params import Truncate, Uncorrected

every_regulariser = pytest.mark.parametrize("regulariser", [EXACT, *DRIFTING], ids=str)
every_drifting = pytest.mark.parametrize("regulariser", DRIFTING, ids=str)
seeds = given(seed=st.integers(0, 10**6))
brief = settings(deadline=None, max_examples=6)  # of each regulariser


def assert_blocks(found, expected, atol=1e-10):
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=atol)


def residual_V(trainer, sampler, k, regulariser):
    """The expected gradient that a constant reward still has with the head's correction."""
    law = top_head(sampler.logits_STV().log_softmax(-1), k)
    terms = centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, trainer.mask_ST, law, regulariser)
    loss_S = weights_ST(trainer, sampler, regulariser)[:, 0] * terms.logprobs_BT[:, 0]
    return trainer.expected_gradient(loss_S - terms.corrections_BT[:, 0], sampler)[0][0]


@pytest.mark.oracle("3.1")
@every_regulariser
@pytest.mark.parametrize("k", [1, 3, 8])
@seeds
@brief
def test_constant_reward_with_a_head_leaves_at_most_the_tail(regulariser, k, seed):
    """|residual|_1 <= 2 sum over the tail of |q f(p / q) - alpha p|, as |e_v - p|_1 <= 2."""
    trainer, sampler = policies(seed, 12, 1)
    p_V, q_V = trainer.table[0][0].softmax(-1).detach(), sampler.table[0][0].softmax(-1).detach()
    tail_V = torch.ones_like(q_V).scatter(0, q_V.topk(k).indices, 0.0).bool()
    rho = q_V[tail_V].sum() / p_V[tail_V].sum()
    alpha = rho * weight(1 / rho, regulariser)
    wrong_V = (q_V * weight(p_V / q_V, regulariser) - alpha * p_V).abs()
    bound = 2 * wrong_V[tail_V].sum()
    assert residual_V(trainer, sampler, k, regulariser).abs().sum() <= bound + 1e-10
    if regulariser == EXACT:
        assert bound < 1e-12


@every_regulariser
@seeds
@brief
def test_a_sampler_that_is_proportional_outside_the_head_is_centred_exactly(regulariser, seed):
    """The head's model of the tail, made true: q = rho p outside it, rho on either side of 1."""
    trainer, _ = policies(seed, 10, 1)
    logits_V = trainer.table[0][0].detach().clone()
    head = logits_V.topk(4).indices
    generator = torch.Generator().manual_seed(seed)
    logits_V[head] += 3 + torch.rand(4, dtype=torch.float64, generator=generator) * 3  # stay the top 4
    for sampler_V, moved_V in [
        (logits_V, trainer.table[0][0].detach()),
        (trainer.table[0][0].detach(), logits_V),
    ]:
        # The second order has the trainer's tail below the sampler's: rho > 1.
        own = Tabular([moved_V[None].clone().requires_grad_()])
        other = Tabular([sampler_V[None].clone().requires_grad_()])
        found_V = residual_V(own, other, 4, regulariser)
        torch.testing.assert_close(found_V, torch.zeros_like(found_V), rtol=0, atol=1e-12)


@pytest.mark.oracle("3.8")
@every_regulariser
@seeds
@brief
def test_the_whole_vocabulary_as_head_is_the_dense_correction(regulariser, seed):
    trainer, sampler = policies(seed)
    law = top_head(sampler.logits_STV().log_softmax(-1), trainer.vocabulary)
    terms = centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, trainer.mask_ST, law, regulariser)
    dense = centred(trainer, sampler, regulariser)
    torch.testing.assert_close(terms.logprobs_BT, dense.logprobs_BT, rtol=0, atol=1e-12)
    weights = rewards_S(seed, trainer)[:, None]
    assert_blocks(
        trainer.gradient((weights * terms.corrections_BT).sum()),
        trainer.gradient((weights * dense.corrections_BT).sum()),
        atol=1e-10,
    )
    assert (terms.floored_BT == 1).all()  # there is no tail to measure
    torch.testing.assert_close(terms.drift_BT, dense.drift_BT, rtol=0, atol=1e-10)
    assert not dense.floored_BT.any()
    torch.testing.assert_close(terms.head_mass_BT, torch.ones_like(terms.head_mass_BT))
    torch.testing.assert_close(dense.head_mass_BT, torch.ones_like(dense.head_mass_BT))


@pytest.mark.oracle("3.8")
@every_drifting
def test_the_residual_of_a_head_falls_with_its_size_on_average(regulariser):
    norms = []
    for seed in range(12):
        trainer, sampler = policies(seed, 64, 1)
        norms.append([float(residual_V(trainer, sampler, k, regulariser).norm()) for k in (1, 4, 16, 32, 64)])
    average = torch.tensor(norms).mean(0)
    assert (average.diff() < 0).all()
    assert average[-1] < 1e-12


@pytest.mark.oracle("3.4")
@every_regulariser
@pytest.mark.parametrize("k", [1, 4, 8])
@seeds
@brief
def test_the_drift_of_a_head_is_that_of_its_model_of_the_sampler(regulariser, k, seed):
    """q on the head and rho p outside, token by token; zero for the exact ratio and on policy."""
    trainer, sampler = policies(seed, 8, 1)
    p_V, q_V = trainer.table[0][0].softmax(-1).detach(), sampler.table[0][0].softmax(-1).detach()
    tail_V = torch.ones_like(q_V).scatter(0, q_V.topk(k).indices, 0.0).bool()
    modelled_V = torch.where(tail_V, p_V * q_V[tail_V].sum() / p_V[tail_V].sum(), q_V)
    mass_V = modelled_V * weight(p_V / modelled_V, regulariser)
    expected = (mass_V - p_V * mass_V.sum()).abs().sum() / 2

    def found_BT(law):
        mask_BT = trainer.mask_ST
        return centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, mask_BT, law, regulariser).drift_BT

    drift_BT = found_BT(top_head(sampler.logits_STV().log_softmax(-1), k))
    torch.testing.assert_close(drift_BT, expected.expand_as(drift_BT), rtol=0, atol=1e-10)
    assert not drift_BT.requires_grad
    if regulariser == EXACT:
        assert drift_BT.max() < 1e-14
    on_policy = found_BT(top_head(trainer.logits_STV().log_softmax(-1), k))
    assert on_policy.max() < 1e-10  # 1 - P_H cancels digits of the tail


@every_regulariser
def test_a_shorter_head_is_padded_without_effect(regulariser):
    """Entries of -inf are no entries: their ids are not read, and their mass is in the tail."""
    trainer, sampler = policies(5, 8, 1)
    logq_NV = sampler.logits_STV().log_softmax(-1).detach()
    short = top_head(logq_NV, 3)
    filler = torch.full_like(short.ids_BTK, -1)
    padded = TopHead(
        torch.cat([short.ids_BTK, filler], -1),
        torch.cat([short.logprobs_BTK, torch.full_like(short.logprobs_BTK, float("-inf"))], -1),
    )
    found = [
        centred_logprobs(trainer.logits_STV(), trainer.tokens_ST, trainer.mask_ST, law, regulariser)
        for law in (short, padded)
    ]
    short_terms, padded_terms = (vars(terms) for terms in found)
    for name, before in short_terms.items():
        rounding = 1e-15 if name == "drift_BT" else 0  # more terms are summed in another order
        torch.testing.assert_close(padded_terms[name], before, rtol=0, atol=rounding)
    assert_blocks(*(trainer.gradient(terms.corrections_BT.sum()) for terms in found), atol=0)


def test_head_correction_by_hand():
    """p = (.5, .2 | .3), q = (.6, .3 | .1): rho = 1/3, and C = 1.25 truncates the tail and nothing else."""
    p_NK, q_NK = torch.tensor([[[0.5, 0.2]], [[0.6, 0.3]]], dtype=torch.float64)
    rho = 0.1 / 0.3
    correction, drifted, floored = head_correction_N(p_NK.log(), q_NK.log(), Truncate(high=1.25))
    alpha = 1.25 * rho
    expected = sum(p * (1 - alpha) * math.log(p) for p in (0.5, 0.2))
    assert correction.tolist() == pytest.approx([expected], abs=1e-12)
    # masses .5, .2 and, of the tail, alpha .3: the tail lacks what the head has too much
    assert drifted.tolist() == pytest.approx([0.3 * (0.7 + alpha * 0.3) - alpha * 0.3], abs=1e-12)
    assert floored.tolist() == [0.0]
    assert head_mass_N(q_NK.log()).tolist() == pytest.approx([0.9])


@pytest.mark.parametrize(
    "head_p, head_q, floored, rho",
    [
        (0.5, 1.0, 1.0, TAIL_FLOOR / 0.5),
        (1.0, 0.5, 1.0, 0.5 / TAIL_FLOOR),
        (1.0, 1.0, 1.0, 1.0),
        (0.5, 0.75, 0.0, 0.5),
    ],
)
def test_a_vanishing_tail_is_floored_and_said_so(head_p, head_q, floored, rho):
    logp, logq = torch.tensor([[[head_p]], [[head_q]]], dtype=torch.float64).log()
    correction, _, found = head_correction_N(logp, logq, Uncorrected())
    assert found.tolist() == [floored]
    expected = (head_q - rho * head_p) * logp[0]
    torch.testing.assert_close(correction, expected, rtol=1e-9, atol=1e-12)
