"""Score centering at single samples and groups: oracles 3.5, 3.7 and 3.9 of methods.md."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.centered import (
    DRIFTING,
    EXACT,
    centred,
    drift,
    loss_S,
    policies,
    rewards_S,
    top_head,
    weight,
    weights_ST,
)
from stages.errors import GuardError
from stages.estimators.centering import (
    centred_logprobs,
    centred_policy_gradient_BT,
    full_correction_N,
)
from stages.estimators.distribution import FromLogits, TopHead
from stages.estimators.losses import masked_sum

every_regulariser = pytest.mark.parametrize("regulariser", [EXACT, *DRIFTING], ids=str)
seeds = given(seed=st.integers(0, 10**6))
brief = settings(deadline=None, max_examples=6)  # of each regulariser


def assert_blocks(found, expected, atol=1e-10):
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=atol)


def zeros(trainer):
    return [torch.zeros_like(table) for table in trainer.table]


@pytest.mark.oracle("3.5")
@every_regulariser
@seeds
@brief
def test_with_one_token_centering_changes_no_group(regulariser, seed):
    trainer, sampler = policies(seed, 6, 1)
    group = torch.randint(6, (5,), generator=torch.Generator().manual_seed(seed))
    reward_G = rewards_S(seed, trainer)[group]
    advantages_S = torch.zeros(6, dtype=torch.float64).index_add(0, group, reward_G - reward_G.mean())
    on, off = (
        trainer.gradient(loss_S(trainer, sampler, advantages_S, regulariser, centring).sum())
        for centring in (True, False)
    )
    assert_blocks(on, off, atol=1e-12)


@pytest.mark.oracle("3.5")
@every_regulariser
@seeds
@brief
def test_at_sequence_level_centering_changes_no_group(regulariser, seed):
    """One weight a sequence: the sequences are then the vocabulary of a single position."""
    trainer, sampler = policies(seed, 3, 2)
    logp_1S, logq_1S = trainer.logprobs_ST().sum(1)[None], sampler.logprobs_ST().sum(1)[None].detach()
    correction, _ = full_correction_N(logp_1S, logq_1S, regulariser)
    group = torch.randint(9, (5,), generator=torch.Generator().manual_seed(seed))
    reward_G = rewards_S(seed, trainer)[group]
    weight_G = weight((logp_1S - logq_1S).exp().detach(), regulariser)[0, group]
    losses = [
        centred_policy_gradient_BT(
            logp_1S[0, group][:, None],
            weight_G[:, None],
            given.expand(5)[:, None],
            (reward_G - reward_G.mean())[:, None],
            torch.ones(5, 1),
        ).sum()
        for given in (correction, torch.zeros_like(correction))
    ]
    assert_blocks(*(trainer.gradient(loss) for loss in losses), atol=1e-12)
    # and what is subtracted is the mean of the weighted score under the sampler:
    q_S = logq_1S[0].exp()
    weight_S = weight((logp_1S - logq_1S).exp().detach(), regulariser)[0]
    assert_blocks(trainer.gradient(correction.sum()), trainer.gradient((q_S * weight_S * logp_1S[0]).sum()))


@pytest.mark.oracle("3.7")
@every_regulariser
@seeds
@brief
def test_autograd_of_the_surrogate_is_the_formula_at_every_sample(regulariser, seed):
    """-A (w s - m) with s = e_y - p and m as defined; the sampler gets no gradient."""
    trainer, sampler = policies(seed)
    expected_m = drift(trainer, sampler, regulariser)
    weight_ST = weights_ST(trainer, sampler, regulariser)
    advantages_ST = rewards_S(seed, trainer)[:, None].repeat(1, 3)
    terms = centred(trainer, sampler, regulariser)
    loss_ST = centred_policy_gradient_BT(
        terms.logprobs_BT, weight_ST, terms.corrections_BT, advantages_ST, trainer.mask_ST
    )
    for sequence, t in product(range(0, 64, 9), range(3)):
        prefix, token = int(trainer.prefix_ST[sequence, t]), int(trainer.tokens_ST[sequence, t])
        score_V = -trainer.table[t][prefix].detach().softmax(-1)
        score_V[token] += 1
        a, w = advantages_ST[sequence, t], weight_ST[sequence, t]
        expected = zeros(trainer)
        expected[t][prefix] = -a * (w * score_V - expected_m[t][prefix])
        assert_blocks(trainer.gradient(loss_ST[sequence, t]), expected, atol=1e-12)
    blocked = sampler.table
    assert torch.autograd.grad(loss_ST.sum(), blocked, allow_unused=True) == (None,) * len(blocked)


@pytest.mark.oracle("3.7")
def test_a_weight_or_an_advantage_with_a_gradient_is_refused():
    """Of f(p / q) in the graph the gradient is A (w' (log p - correction) + w) s: no policy gradient."""
    logprobs, corrections, weights, advantages = torch.randn(4, 2, 3, generator=torch.Generator())
    mask = torch.ones(2, 3)
    with pytest.raises(GuardError, match="weights of a policy gradient require a gradient: compute"):
        centred_policy_gradient_BT(logprobs, weights.requires_grad_(), corrections, advantages, mask)
    with pytest.raises(GuardError, match="advantages of a policy gradient require a gradient: compute"):
        centred_policy_gradient_BT(logprobs, weights.detach(), corrections, advantages.requires_grad_(), mask)


@pytest.mark.oracle("3.9")
@pytest.mark.parametrize("k", [None, 3])
@every_regulariser
@seeds
@brief
def test_permuting_the_vocabulary_changes_nothing(regulariser, k, seed):
    generator = torch.Generator().manual_seed(seed)
    logits, other = torch.randn(2, 2, 5, 7, dtype=torch.float64, generator=generator)
    target = torch.randint(7, (2, 5), generator=generator)
    shuffled = torch.randperm(7, generator=generator)
    mask = torch.ones(2, 5, dtype=torch.bool)

    def terms(own, sampler_logits, target):
        own = own.clone().requires_grad_()
        law = FromLogits(sampler_logits) if k is None else top_head(sampler_logits.log_softmax(-1), k)
        found = centred_logprobs(own, target, mask, law, regulariser)
        total = (found.logprobs_BT - 2 * found.corrections_BT).sum()
        return found.logprobs_BT, found.corrections_BT, torch.autograd.grad(total, own)[0]

    *values, slopes = terms(logits, other, target)
    *values_p, slopes_p = terms(logits[..., shuffled], other[..., shuffled], shuffled.argsort()[target])
    for before, after in [*zip(values, values_p, strict=True), (slopes[..., shuffled], slopes_p)]:
        torch.testing.assert_close(before, after, rtol=0, atol=1e-12)


@pytest.mark.oracle("3.9")
@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("placeholder", [float("nan"), float("inf"), float("-inf")])
@every_regulariser
def test_masked_positions_are_exactly_zero_whatever_they_hold(regulariser, k, placeholder):
    generator = torch.Generator().manual_seed(0)
    logits, other = torch.randn(2, 2, 4, 6, generator=generator)
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    weights, advantages = torch.rand(2, 2, 4, generator=generator)
    law = top_head(other.log_softmax(-1), 3)
    ids, logq = law.ids_BTK.clone(), law.logprobs_BTK.clone()

    def result(hole):
        own = logits.masked_fill(~mask[..., None], hole).requires_grad_()
        sampler = (
            FromLogits(other.masked_fill(~mask[..., None], hole))
            if k is None
            else TopHead(ids.masked_fill(~mask[..., None], -1), logq.masked_fill(~mask[..., None], hole))
        )
        target = torch.ones(2, 4, dtype=torch.int64).masked_fill(~mask, -100)
        terms = centred_logprobs(own, target, mask, sampler, regulariser)
        loss_BT = centred_policy_gradient_BT(
            terms.logprobs_BT,
            weights.masked_fill(~mask, hole),
            terms.corrections_BT,
            advantages.masked_fill(~mask, hole),
            mask,
        )
        for value_BT in [
            terms.logprobs_BT,
            terms.corrections_BT,
            terms.drift_BT,
            terms.head_mass_BT,
            terms.floored_BT,
            loss_BT,
        ]:
            assert torch.equal(value_BT[~mask], torch.zeros(int((~mask).sum())))
        (slopes,) = torch.autograd.grad(masked_sum(loss_BT, mask), own)
        assert torch.equal(slopes[~mask], torch.zeros_like(slopes[~mask]))
        return loss_BT.detach(), slopes

    for plain, holed in zip(result(0.0), result(placeholder), strict=True):
        assert torch.equal(plain, holed)
        assert plain.isfinite().all()


def test_infinite_weights_in_the_loss_do_not_reach_masked_gradients():
    """Also in the gradient with respect to the log-probs and corrections of the holes themselves."""
    logprobs = torch.tensor([[-1.0, float("-inf")]], requires_grad=True)
    corrections = torch.tensor([[-0.5, float("nan")]], requires_grad=True)
    weights, advantages = torch.tensor([[2.0, float("inf")]]), torch.tensor([[3.0, float("nan")]])
    loss = centred_policy_gradient_BT(logprobs, weights, corrections, advantages, torch.tensor([[1, 0]]))
    assert loss.tolist() == [[-3.0 * (2.0 * -1.0 + 0.5), 0.0]]
    slopes = torch.autograd.grad(loss.sum(), [logprobs, corrections])
    assert [slope.tolist() for slope in slopes] == [[[-6.0, 0.0]], [[3.0, 0.0]]]


@every_regulariser
@pytest.mark.parametrize("k", [None, 3])
def test_temperature_is_the_trainers_own_and_may_differ_by_row(regulariser, k):
    generator = torch.Generator().manual_seed(3)
    logits, other = torch.randn(2, 2, 4, 6, dtype=torch.float64, generator=generator)
    target = torch.randint(6, (2, 4), generator=generator)
    mask = torch.ones(2, 4, dtype=torch.bool)
    temperature = torch.tensor([0.6, 1.3], dtype=torch.float64)
    cooled, other_cooled = logits / temperature[:, None, None], other / temperature[:, None, None]
    law = FromLogits(other_cooled) if k is None else top_head(other_cooled.log_softmax(-1), k)
    plain = centred_logprobs(cooled, target, mask, law, regulariser)
    own = FromLogits(other, temperature) if k is None else law
    by_row = centred_logprobs(logits, target, mask, own, regulariser, temperature)
    for before, after in zip(vars(plain).values(), vars(by_row).values(), strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=1e-12)
    half = centred_logprobs(logits[:1], target[:1], mask[:1], _first_row(own), regulariser, 0.6)
    torch.testing.assert_close(half.corrections_BT, plain.corrections_BT[:1], rtol=0, atol=1e-12)
    torch.testing.assert_close(half.logprobs_BT, plain.logprobs_BT[:1], rtol=0, atol=1e-12)


def _first_row(law):
    if isinstance(law, TopHead):
        return TopHead(law.ids_BTK[:1], law.logprobs_BTK[:1])
    return FromLogits(law.logits_BTV[:1], 0.6)


@every_regulariser
def test_tokens_impossible_for_the_trainer_do_not_spoil_the_correction(regulariser):
    """Logits of -inf on both sides: 0 * -inf is 0 here, forward and backward."""
    logits = torch.tensor([[[0.3, float("-inf"), -0.2, 1.0]]], requires_grad=True)
    law = FromLogits(torch.tensor([[[0.1, float("-inf"), 0.4, 0.2]]]))
    terms = centred_logprobs(logits, torch.tensor([[0]]), torch.ones(1, 1).bool(), law, regulariser)
    (slopes,) = torch.autograd.grad(terms.corrections_BT.sum(), logits)
    assert terms.corrections_BT.isfinite().all()
    assert slopes.isfinite().all()
    assert slopes[0, 0, 1] == 0
