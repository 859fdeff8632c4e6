"""Each form of a distillation's loss against its formula written out, on tables, both at temperature 1.3."""

import pytest
import torch

from stages.engines.batch import completion_batch
from stages.engines.protocol import Forward
from stages.estimators.distribution import FromLogits
from stages.estimators.params import ForwardKl, FullVocabularyKl, SampledKl, TopKKl, VarianceReducedKl
from stages.opd.loss import DistillationTerm

TAU = 1.3
PROMPTS = [[1, 2], [3], [2, 2, 1]]
COMPLETIONS = [[4, 5, 6], [5], [6, 4, 4, 3, 0]]
STUDENT_VV, TEACHER_VV = (
    torch.randn(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)
)


class TableTeacher:
    def distribution(self, batch, temperature):
        return FromLogits(TEACHER_VV[batch.input_BT], temperature)


def full_kl(p, t, token):
    return (p.exp() * (p - t)).sum()


def cross_entropy(p, t, token):
    return -(t.exp() * p).sum()


def top_k_kl(k):
    def kl(p, t, token):
        head = p.topk(k).indices
        tail = [v for v in range(len(p)) if v not in head.tolist()]
        p_tail, t_tail = p[tail].exp().sum(), t[tail].exp().sum()
        return (p[head].exp() * (p[head] - t[head])).sum() + p_tail * (p_tail / t_tail).log()

    return kl


def sampled(p, t, token):
    return -float((t - p)[token].detach()) * p[token]


def variance_reduced(p, t, token):
    return -float(((t - p)[token] + (p.exp() * (p - t)).sum()).detach()) * p[token]


FORMS = {
    "full": (FullVocabularyKl(), full_kl, full_kl),
    "top 1": (TopKKl(k=1), top_k_kl(1), top_k_kl(1)),
    "top 3": (TopKKl(k=3), top_k_kl(3), top_k_kl(3)),
    "forward": (ForwardKl(), cross_entropy, lambda p, t, token: (p - t)[token]),
    "sampled": (SampledKl(), sampled, lambda p, t, token: (p - t)[token]),
    "variance reduced": (VarianceReducedKl(), variance_reduced, lambda p, t, token: (p - t)[token]),
}


@pytest.mark.parametrize("micro_rows", [1, 3])
@pytest.mark.parametrize("name", FORMS)
def test_the_loss_is_the_mean_over_the_batchs_tokens_at_the_sampling_temperature(name, micro_rows):
    estimator, form, told = FORMS[name]
    by_hand_VV = STUDENT_VV.clone().requires_grad_()
    losses, kls, recorded = [], [], []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        recorded.append([])
        for before, token in zip([prompt[-1], *completion], completion, strict=False):
            p = (by_hand_VV[before] / TAU).log_softmax(-1)
            t = (TEACHER_VV[before] / TAU).log_softmax(-1)
            losses.append(form(p, t, token))
            kls.append(float(told(p, t, token).detach()))
            recorded[-1].append(float(p[token].detach()))
    torch.stack(losses).mean().backward()
    assert len(losses) == 9 and by_hand_VV.grad.abs().max() > 1e-2

    student_VV = STUDENT_VV.clone().requires_grad_()
    batch = completion_batch(PROMPTS, COMPLETIONS, 0)
    recorded_BT = torch.zeros(batch.mask_BT.shape)
    recorded_BT[batch.mask_BT] = torch.tensor([value for row in recorded for value in row])
    term = DistillationTerm(batch, TableTeacher(), recorded_BT, TAU, estimator)
    for micro in batch.micro_batches(micro_rows):
        term.loss(Forward(student_VV[micro.input_BT]), micro).backward()
    torch.testing.assert_close(student_VV.grad, by_hand_VV.grad, rtol=0, atol=1e-7)
    assert term.reverse_kl == pytest.approx(sum(kls) / 9, abs=1e-6)
    assert term.agreement.gap < 1e-6 and term.agreement.tokens == 9
