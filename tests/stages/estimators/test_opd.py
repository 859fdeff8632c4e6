"""Distillation gradients against a tabular policy whose sequences are all enumerated."""

from itertools import product

import pytest
import torch

from stages.estimators.opd import reverse_kl_BT, sampled_advantage_BT

V, T = 4, 3


def tables(seed):
    """Logits [V] for every prefix of every length below T, keyed by the prefix."""
    generator = torch.Generator().manual_seed(seed)
    prefixes = [h for t in range(T) for h in product(range(V), repeat=t)]
    return {h: torch.randn(V, dtype=torch.float64, generator=generator) for h in prefixes}


def stacked(table, sequence):
    """[1, T, V]: the logits that this sequence meets."""
    return torch.stack([table[sequence[:t]] for t in range(T)])[None]


def gradient(table, loss):
    grads = torch.autograd.grad(loss, list(table.values()), allow_unused=True, retain_graph=True)
    return torch.cat([torch.zeros(V, dtype=torch.float64) if g is None else g for g in grads])


@pytest.fixture
def student():
    return {h: logits.requires_grad_() for h, logits in tables(1).items()}


def test_sampled_advantage_has_the_gradient_of_the_full_reverse_kl(student):
    teacher = tables(2)
    sampled = full = undetached = 0
    for sequence in product(range(V), repeat=T):
        own, other = stacked(student, sequence), stacked(teacher, sequence)
        index = torch.tensor(sequence)[None, :, None]
        logprobs = own.log_softmax(-1).gather(-1, index)[..., 0]
        teacher_logprobs = other.log_softmax(-1).gather(-1, index)[..., 0]
        probability = logprobs.sum().exp().detach()
        sampled -= probability * (sampled_advantage_BT(logprobs, teacher_logprobs) * logprobs).sum()
        full += probability * reverse_kl_BT(own, other).sum()
        undetached -= probability * (teacher_logprobs - logprobs).sum()
    # Independent of both: autograd through the definition, with prefix probabilities as constants.
    definition = 0
    for prefix, logits in student.items():
        reached = torch.ones((), dtype=torch.float64)
        for t, token in enumerate(prefix):
            reached = reached * student[prefix[:t]].softmax(-1)[token].detach()
        log_p, log_q = logits.log_softmax(-1), teacher[prefix].log_softmax(-1)
        definition += reached * (log_p.exp() * (log_p - log_q)).sum()
    expected = gradient(student, definition)
    assert expected.norm() > 0.1
    torch.testing.assert_close(gradient(student, sampled), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient(student, full), expected, rtol=0, atol=1e-12)
    # and the tempting mistake: a differentiated log-ratio teaches nothing
    torch.testing.assert_close(gradient(student, undetached), torch.zeros_like(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_teacher_equal_to_student_gives_exact_zeros(dtype):
    logits = torch.randn(2, 5, 300, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    divergence = reverse_kl_BT(logits, logits.detach().clone())
    assert torch.equal(divergence, torch.zeros_like(divergence))
    (grad,) = torch.autograd.grad(divergence.sum(), logits)
    assert torch.equal(grad, torch.zeros_like(grad))


def test_value_and_gradient_are_those_of_kl_divergence():
    generator = torch.Generator().manual_seed(3)
    own = torch.randn(3, 4, 9, dtype=torch.float64, generator=generator).requires_grad_()
    other = torch.randn(3, 4, 9, dtype=torch.float64, generator=generator).requires_grad_()
    oracle = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=own), torch.distributions.Categorical(logits=other.detach())
    )
    ours = reverse_kl_BT(own, other)
    torch.testing.assert_close(ours, oracle, rtol=0, atol=1e-12)
    assert (ours > 0).all()
    (expected,) = torch.autograd.grad(oracle.sum(), own)
    grad_own, grad_other = torch.autograd.grad(ours.sum(), [own, other], allow_unused=True)
    torch.testing.assert_close(grad_own, expected, rtol=0, atol=1e-12)
    assert grad_other is None


def test_low_precision_logits_are_compared_in_single_precision():
    own = torch.randn(1, 2, 50, generator=torch.Generator().manual_seed(4)).bfloat16()
    other = own.flip(-1)
    result = reverse_kl_BT(own, other)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, reverse_kl_BT(own.float(), other.float()))


def test_shifting_the_teacher_by_one_position_is_seen():
    """Logits and labels off by one (trl 4562) give a divergence that is not zero."""
    logits = torch.randn(1, 6, 20, generator=torch.Generator().manual_seed(5))
    assert (reverse_kl_BT(logits[:, 1:], logits[:, :-1]) > 0.1).all()


def test_sampled_advantage_carries_no_gradient():
    student = torch.zeros(1, 2, requires_grad=True)
    teacher = torch.ones(1, 2, requires_grad=True)
    advantage = sampled_advantage_BT(student, teacher)
    assert not advantage.requires_grad
    assert torch.equal(advantage, torch.ones(1, 2))
