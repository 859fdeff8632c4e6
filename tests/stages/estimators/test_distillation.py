"""Distillation against policies whose sequences are all enumerated: oracles 6.1 and 6.2 of methods.md."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from benchmarks.proof.tabular import Tabular, flat
from stages.errors import GuardError
from stages.estimators.distillation import (
    forward_kl_BT,
    forward_kl_N,
    reverse_kl_BT,
    reverse_kl_N,
    sampled_advantage_BT,
    sampled_terms,
    top_k_reverse_kl_BT,
    top_k_reverse_kl_N,
    variance_reduced_terms,
)
from stages.estimators.distribution import FromLogits
from stages.estimators.losses import policy_gradient_BT

V, T = 4, 3
seeds = given(seed=st.integers(0, 10**6))
brief = settings(deadline=None, max_examples=20)


def pair(seed, vocabulary=V, length=T):
    return Tabular.random(vocabulary, length, seed), Tabular.random(vocabulary, length, seed + 1)


def law(policy):
    return FromLogits(policy.logits_STV())


def kl_of_prefixes(first, second):
    """KL(first || second) of the next token after every prefix, [V ** t] by position; both differentiable."""
    return [
        kl_divergence(Categorical(logits=own), Categorical(logits=other))
        for own, other in zip(first.table, second.table, strict=True)
    ]


def reached(policy):
    """Probability of every prefix, detached, [V ** t] by position."""
    return [policy.probability_S().view(policy.vocabulary**t, -1).sum(1) for t in range(policy.length)]


def at_fixed_prefixes(student, teacher):
    """The gradient that is claimed: of sum_t KL(student || teacher) at the student's prefixes, held fixed."""
    kls = kl_of_prefixes(student, Tabular([table.detach() for table in teacher.table]))
    return student.gradient(sum((p * kl).sum() for p, kl in zip(reached(student), kls, strict=True)))


def policy_gradient_S(student, advantages_ST):
    ones_ST = torch.ones_like(advantages_ST)
    return policy_gradient_BT(student.logprobs_ST(), ones_ST, advantages_ST, student.mask_ST).sum(1)


def assert_blocks(found, expected, atol=1e-10):
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=atol)


def terms_of(estimator, student, teacher):
    return estimator(student.logits_STV(), student.tokens_ST, student.mask_ST, law(teacher))


@pytest.mark.oracle("6.2")
@seeds
@brief
def test_every_on_policy_form_has_the_expected_gradient_of_the_reverse_kl(seed):
    student, teacher = pair(seed)
    expected = at_fixed_prefixes(student, teacher)
    assert flat(expected).norm() > 1e-3
    losses = [reverse_kl_BT(student.logits_STV(), student.mask_ST, law(teacher)).sum(1)]
    losses.append(top_k_reverse_kl_BT(student.logits_STV(), student.mask_ST, law(teacher), V).sum(1))
    for estimator in (sampled_terms, variance_reduced_terms):
        terms = terms_of(estimator, student, teacher)
        torch.testing.assert_close(terms.logprobs_BT, student.logprobs_ST(), rtol=0, atol=1e-12)
        ones_ST = torch.ones_like(terms.advantages_BT)
        losses.append(
            policy_gradient_BT(terms.logprobs_BT, ones_ST, terms.advantages_BT, student.mask_ST).sum(1)
        )
    for loss_S in losses:
        assert_blocks(student.expected_gradient(loss_S, student), expected)


@pytest.mark.oracle("6.2")
@seeds
@brief
def test_a_differentiated_log_ratio_teaches_nothing(seed):
    student, teacher = pair(seed)
    log_ratio_S = (student.logprobs_ST() - teacher.logprobs_ST().detach()).sum(1)
    found = student.expected_gradient(log_ratio_S, student)
    assert_blocks(found, [torch.zeros_like(table) for table in student.table])


@seeds
@brief
def test_the_reverse_kl_of_whole_sequences_is_another_gradient(seed):
    """Its value is the expected sum of ours; its gradient takes the log-ratios still to come as well."""
    student, teacher = pair(seed)
    probability_S = student.logprobs_ST().sum(1).exp()
    whole = (probability_S * (student.logprobs_ST() - teacher.logprobs_ST().detach()).sum(1)).sum()
    ours_S = reverse_kl_BT(student.logits_STV(), student.mask_ST, law(teacher)).sum(1)
    torch.testing.assert_close((student.probability_S() * ours_S).sum(), whole, rtol=0, atol=1e-12)
    advantages_ST = terms_of(sampled_terms, student, teacher).advantages_BT
    to_come_ST = advantages_ST.flip(1).cumsum(1).flip(1)
    found = student.expected_gradient(policy_gradient_S(student, to_come_ST), student)
    assert_blocks(found, student.gradient(whole))
    assert (flat(found) - flat(at_fixed_prefixes(student, teacher))).norm() > 1e-4


@seeds
@brief
def test_forward_kl_on_the_teachers_samples_is_that_of_whole_sequences(seed):
    """Value and gradient: the samples do not depend on the student."""
    student, teacher = pair(seed)
    q_S = teacher.probability_S()
    whole = (q_S * (teacher.logprobs_ST().detach() - student.logprobs_ST()).sum(1)).sum()
    loss_S = forward_kl_BT(student.logits_STV(), student.mask_ST, law(teacher)).sum(1)
    torch.testing.assert_close((q_S * loss_S).sum(), whole, rtol=0, atol=1e-10)
    assert_blocks(student.expected_gradient(loss_S, teacher), student.gradient(whole))


@pytest.mark.oracle("6.1")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_teacher_equal_to_the_student_gives_exact_zeros(dtype, temperature):
    logits = torch.randn(2, 5, 300, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    teacher = FromLogits(logits.detach().clone(), temperature)
    mask, target = torch.ones(2, 5, dtype=torch.bool), torch.arange(10).view(2, 5)
    for loss_BT in [
        reverse_kl_BT(logits, mask, teacher, temperature),
        top_k_reverse_kl_BT(logits, mask, teacher, 10, temperature),
    ]:
        assert torch.equal(loss_BT, torch.zeros_like(loss_BT))
        (gradient,) = torch.autograd.grad(loss_BT.sum(), logits)
        assert torch.equal(gradient, torch.zeros_like(gradient))
    for estimator in (sampled_terms, variance_reduced_terms):
        advantages_BT = estimator(logits, target, mask, teacher, temperature).advantages_BT
        assert torch.equal(advantages_BT, torch.zeros_like(advantages_BT))
    forward_BT = forward_kl_BT(logits, mask, teacher, temperature)
    assert torch.equal(forward_BT, torch.zeros_like(forward_BT))
    (gradient,) = torch.autograd.grad(forward_BT.sum(), logits)
    assert gradient.abs().max() < 1e-6  # p - teacher, as the sums round


def random_logits(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()
    return own, torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize("forward", [False, True])
@seeds
@brief
def test_value_and_gradient_are_those_of_kl_divergence(forward, seed):
    own, other = random_logits(seed, 6, 9)
    laws = Categorical(logits=own), Categorical(logits=other.detach())
    oracle = kl_divergence(*(reversed(laws) if forward else laws))
    ours = (forward_kl_N if forward else reverse_kl_N)(own, other.detach().log_softmax(-1))
    torch.testing.assert_close(ours, oracle, rtol=0, atol=1e-12)
    assert (ours > 0).all()
    weights = torch.arange(6.0, dtype=torch.float64)
    (expected,) = torch.autograd.grad((weights * oracle).sum(), own)
    (found,) = torch.autograd.grad((weights * ours).sum(), own)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_gradient_of_the_forward_kl_is_student_minus_teacher():
    own, other = random_logits(1, 1, 5)
    (found,) = torch.autograd.grad(forward_kl_N(own, other.detach().log_softmax(-1)).sum(), own)
    torch.testing.assert_close(found, (own.softmax(-1) - other.softmax(-1)).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 8, 9])
@seeds
@brief
def test_top_k_is_the_kl_of_the_coarse_grained_distributions(k, seed):
    """The head's tokens and one bucket for the others; the head stays where it was for the gradient."""
    own, other = random_logits(seed, 4, 9)
    head = own.detach().argsort(-1, descending=True)[:, :k]

    def coarse(p):
        kept = p.gather(-1, head)
        return kept if k == 9 else torch.cat([kept, 1 - kept.sum(-1, keepdim=True)], -1)

    p, q = coarse(own.softmax(-1)), coarse(other.detach().softmax(-1))
    expected = (p * (p / q).log()).sum(-1)
    found = top_k_reverse_kl_N(own, other.detach().log_softmax(-1), k)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), own), torch.autograd.grad(expected.sum(), own), rtol=0, atol=1e-12
    )


@seeds
@brief
def test_top_k_is_a_lower_bound_that_rises_to_the_full_kl(seed):
    own, other = random_logits(seed, 5, 8)
    teacher = other.detach().log_softmax(-1)
    values_KN = torch.stack([top_k_reverse_kl_N(own, teacher, k) for k in range(1, 9)])
    assert (values_KN.diff(dim=0) >= -1e-12).all()
    torch.testing.assert_close(values_KN[-1], reverse_kl_N(own, teacher), rtol=0, atol=1e-12)


def test_top_k_keeps_a_tail_that_single_precision_rounds_away():
    """A tail of 3e-9 whose log-ratio is +15: 1 - head would be 0 or 6e-8."""
    own = torch.tensor([[20.0, 0.4, 0.0, -1.0]])
    other = torch.tensor([[20.0, -15.0, -15.0, -15.0]])
    found = top_k_reverse_kl_N(own, other.log_softmax(-1), 1)
    own, other = own.double(), other.double()
    p, q = own.softmax(-1)[0], other.softmax(-1)[0]
    expected = p[0] * (p[0] / q[0]).log() + p[1:].sum() * (p[1:].sum() / q[1:].sum()).log()
    tail = p[1:].sum() * (p[1:].sum() / q[1:].sum()).log()
    assert abs(found.double().item() - expected.item()) < 0.1 * tail.item()


@pytest.mark.parametrize("k", [0, 6])
def test_a_head_larger_than_the_vocabulary_is_refused(k):
    logits = torch.zeros(1, 1, 5)
    with pytest.raises(GuardError, match=f"the {k} most likely of 5 tokens cannot be taken: set k to"):
        top_k_reverse_kl_BT(logits, torch.ones(1, 1), FromLogits(logits), k)


@pytest.mark.oracle("6.2")
@seeds
@brief
def test_the_variance_reduced_advantage_has_mean_zero_and_a_smaller_square(seed):
    """At every prefix: E[d] = -KL is subtracted, so E[a] = 0 and E[a^2] = E[d^2] - KL^2."""
    student, teacher = pair(seed, 6, 1)
    p_S = student.probability_S()
    d_S = terms_of(sampled_terms, student, teacher).advantages_BT[:, 0]
    a_S = terms_of(variance_reduced_terms, student, teacher).advantages_BT[:, 0]
    kl = kl_of_prefixes(student, teacher)[0][0].detach()
    torch.testing.assert_close(d_S, (teacher.logprobs_ST() - student.logprobs_ST())[:, 0].detach())
    assert abs((p_S * a_S).sum()) < 1e-12
    torch.testing.assert_close((p_S * d_S).sum(), -kl, rtol=0, atol=1e-12)
    torch.testing.assert_close((p_S * (d_S**2 - a_S**2)).sum(), kl**2, rtol=0, atol=1e-12)


def gradient_variance(student, teacher, estimator):
    """Trace of the covariance of one sample's gradient."""
    loss_S = policy_gradient_S(student, terms_of(estimator, student, teacher).advantages_BT)
    gradients_SD = torch.stack([flat(student.gradient(loss)) for loss in loss_S])
    p_S1 = student.probability_S()[:, None]
    mean_D = (p_S1 * gradients_SD).sum(0)
    return float((p_S1 * (gradients_SD - mean_D) ** 2).sum())


def test_the_variance_reduced_gradient_varies_less_near_the_teacher_and_not_always():
    """Over 20 pairs; where the teacher raises a rare token the baseline has the wrong sign."""
    ratios = []
    for seed in range(20):
        student = Tabular.random(16, 1, seed)
        teacher = student.near(seed + 100, 1.0)
        reduced = gradient_variance(student, teacher, variance_reduced_terms)
        ratios.append(reduced / gradient_variance(student, teacher, sampled_terms))
    assert max(ratios) < 1
    assert sum(ratios) / len(ratios) == pytest.approx(0.82, abs=0.03)
    student = Tabular([torch.tensor([[0.9, 0.1]]).double().log().requires_grad_()])
    teacher = Tabular([torch.tensor([[0.6, 0.4]]).double().log().requires_grad_()])
    assert gradient_variance(student, teacher, variance_reduced_terms) > gradient_variance(
        student, teacher, sampled_terms
    )


FORMS = {
    "reverse": lambda logits, target, mask, teacher, tau: reverse_kl_BT(logits, mask, teacher, tau),
    "top k": lambda logits, target, mask, teacher, tau: top_k_reverse_kl_BT(logits, mask, teacher, 3, tau),
    "forward": lambda logits, target, mask, teacher, tau: forward_kl_BT(logits, mask, teacher, tau),
    "sampled": lambda *given: sampled_terms(*given).logprobs_BT * sampled_terms(*given).advantages_BT,
    "reduced": lambda *given: (
        variance_reduced_terms(*given).logprobs_BT * variance_reduced_terms(*given).advantages_BT
    ),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
@pytest.mark.parametrize("hole", [float("nan"), float("inf"), float("-inf")])
def test_masked_positions_are_exactly_zero_whatever_they_hold(form, hole):
    own, other = random_logits(2, 2, 4, 6)
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    target = torch.randint(6, (2, 4), generator=torch.Generator().manual_seed(0))

    def result(value, label):
        logits = own.detach().masked_fill(~mask[..., None], value).requires_grad_()
        teacher = FromLogits(other.detach().masked_fill(~mask[..., None], value))
        loss_BT = form(logits, target.masked_fill(~mask, label), mask, teacher, 1.0)
        (gradient,) = torch.autograd.grad(loss_BT.sum(), logits)
        assert torch.equal(loss_BT[~mask], torch.zeros_like(loss_BT[~mask]))
        assert torch.equal(gradient[~mask], torch.zeros_like(gradient[~mask]))
        return loss_BT, gradient

    for plain, holed in zip(result(0.0, 0), result(hole, -100), strict=True):
        assert torch.equal(plain, holed)
        assert plain[mask].abs().min() > 0


@every_form
def test_temperature_divides_the_students_logits_and_may_differ_by_row(form):
    own, other = random_logits(3, 2, 4, 6)
    mask = torch.ones(2, 4, dtype=torch.bool)
    target = torch.randint(6, (2, 4), generator=torch.Generator().manual_seed(0))
    temperature = torch.tensor([0.6, 1.3], dtype=torch.float64)
    teacher = FromLogits(other.detach())
    expected = form(own / temperature[:, None, None], target, mask, teacher, 1.0)
    torch.testing.assert_close(form(own, target, mask, teacher, temperature), expected, rtol=0, atol=1e-12)
    scalar = form(own[:1], target[:1], mask[:1], FromLogits(other[:1].detach()), 0.6)
    torch.testing.assert_close(scalar, expected[:1], rtol=0, atol=1e-12)


@every_form
def test_tokens_impossible_for_both_do_not_spoil_the_others(form):
    """Logits of -inf on both sides, as a masked vocabulary has: 0 log 0 is 0, forward and backward."""
    own, other = random_logits(4, 1, 2, 6)
    padded = torch.cat([own, own.new_full((1, 2, 2), float("-inf"))], -1).detach().requires_grad_()
    teacher = FromLogits(torch.cat([other, other.new_full((1, 2, 2), float("-inf"))], -1).detach())
    target, mask = torch.tensor([[1, 4]]), torch.ones(1, 2, dtype=torch.bool)
    found = form(padded, target, mask, teacher, 1.0)
    expected = form(own, target, mask, FromLogits(other.detach()), 1.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(found.sum(), padded)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), own)
    torch.testing.assert_close(gradient[..., :6], expected_gradient, rtol=0, atol=1e-12)
    assert torch.equal(gradient[..., 6:], torch.zeros_like(gradient[..., 6:]))


def test_leaving_the_teachers_support_is_infinite_and_not_silently_less():
    own = torch.zeros(1, 3)
    teacher = torch.tensor([[0.0, 0.0, float("-inf")]]).log_softmax(-1)
    assert reverse_kl_N(own, teacher).item() == float("inf")
    assert forward_kl_N(own, teacher).isfinite().all()


def test_the_teacher_and_the_advantages_carry_no_gradient():
    own, other = random_logits(5, 1, 3, 6)
    mask, target = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0, 1, 2]])
    for estimator in (sampled_terms, variance_reduced_terms):
        assert not estimator(own, target, mask, FromLogits(other)).advantages_BT.requires_grad
    for form in FORMS.values():
        loss = form(own, target, mask, FromLogits(other), 1.0).sum()
        assert torch.autograd.grad(loss, [own, other], allow_unused=True)[1] is None
    student, teacher = torch.zeros(1, 2, requires_grad=True), torch.ones(1, 2, requires_grad=True)
    advantage = sampled_advantage_BT(student, teacher)
    assert not advantage.requires_grad
    assert torch.equal(advantage, torch.ones(1, 2))


class Asked:
    """A teacher that counts the positions it is asked for."""

    def __init__(self, law):
        self.law, self.positions = law, 0

    def logprobs_NV(self, places_N):
        self.positions += len(places_N)
        return self.law.logprobs_NV(places_N)


@pytest.mark.parametrize("estimator", [sampled_terms, variance_reduced_terms])
def test_the_sampled_forms_ask_the_teacher_once_a_position(estimator):
    own, other = random_logits(6, 2, 4, 6)
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0]]).bool()
    teacher = Asked(FromLogits(other.detach()))
    terms = estimator(own, torch.zeros(2, 4, dtype=torch.int64), mask, teacher)
    torch.autograd.grad(terms.logprobs_BT.sum(), own)
    assert teacher.positions == int(mask.sum())


def test_low_precision_logits_are_compared_in_single_precision():
    own = torch.randn(1, 2, 50, generator=torch.Generator().manual_seed(4)).bfloat16()
    mask, other = torch.ones(1, 2, dtype=torch.bool), own.flip(-1)
    found = reverse_kl_BT(own, mask, FromLogits(other))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, reverse_kl_BT(own.float(), mask, FromLogits(other.float())))


def test_shifting_the_teacher_by_one_position_is_seen():
    """Logits and labels off by one give a divergence that is not zero."""
    logits = torch.randn(1, 6, 20, generator=torch.Generator().manual_seed(5))
    shifted = reverse_kl_BT(logits[:, 1:], torch.ones(1, 5, dtype=torch.bool), FromLogits(logits[:, :-1]))
    assert (shifted > 0.1).all()
