"""On-policy distillation: reverse KL of the student to the teacher on the student's own samples.

The detached log-ratio d_t used as an advantage has exactly the gradient of the full-vocabulary reverse KL in
expectation; differentiating the sampled log-ratio itself has expectation zero, so it is never a loss here.
"""

import torch
from torch import Tensor


def reverse_kl_BT(student_logits_BTV: Tensor, teacher_logits_BTV: Tensor) -> Tensor:
    """KL(student || teacher) per position, in nats, over the full vocabulary; differentiable in the student.

    The log-ratio is detached: as sum_v p_v grad log p_v = 0, the gradient is sum_v d_v grad p_v, which is
    exactly zero (not 1e-17) where teacher and student agree. First-order gradients of finite logits only.
    """
    precise = torch.promote_types(student_logits_BTV.dtype, torch.float32)
    with torch.no_grad():
        log_ratio_BTV = student_logits_BTV.log_softmax(-1, dtype=precise)
        log_ratio_BTV -= teacher_logits_BTV.log_softmax(-1, dtype=precise)
    return (student_logits_BTV.softmax(-1, dtype=precise) * log_ratio_BTV).sum(-1)


def sampled_advantage_BT(student_logprobs_BT: Tensor, teacher_logprobs_BT: Tensor) -> Tensor:
    """d_t = log teacher - log student at the sampled tokens, detached: an advantage per token."""
    return (teacher_logprobs_BT - student_logprobs_BT).detach()
