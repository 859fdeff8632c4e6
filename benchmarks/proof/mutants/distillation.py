"""Wrong versions of distillation."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_distillation.py"
FILE = "stages/estimators/distillation.py"

MUTANTS = [
    Mutant(
        name="reverse KL: log-ratio differentiated",
        file=FILE,
        old="log_ratio_NV = _log_ratio_NV(logits_NV.detach().log_softmax(-1), teacher_logprobs_NV)\n"
        "    return (logits_NV.softmax(-1) * log_ratio_NV)",
        new="log_ratio_NV = _log_ratio_NV(logits_NV.log_softmax(-1), teacher_logprobs_NV)\n"
        "    return (logits_NV.detach().softmax(-1) * log_ratio_NV)",
    ),
    Mutant(
        name="reverse KL: both factors differentiated, zero only up to rounding",
        file=FILE,
        old="_log_ratio_NV(logits_NV.detach().log_softmax(-1), teacher_logprobs_NV)",
        new="_log_ratio_NV(logits_NV.log_softmax(-1), teacher_logprobs_NV)",
    ),
    Mutant(
        name="reverse KL under the teacher",
        file=FILE,
        old="return (logits_NV.softmax(-1) * log_ratio_NV).sum(-1)",
        new="return (teacher_logprobs_NV.exp() * log_ratio_NV).sum(-1)",
    ),
    Mutant(
        name="reverse KL: mean over the vocabulary",
        file=FILE,
        old="return (logits_NV.softmax(-1) * log_ratio_NV).sum(-1)",
        new="return (logits_NV.softmax(-1) * log_ratio_NV).mean(-1)",
    ),
    Mutant(
        name="reverse KL: student's temperature forgotten",
        file=FILE,
        old="return (reverse_kl_N(scaled(logits_NV, scale, places_N), teacher",
        new="return (reverse_kl_N(logits_NV, teacher",
    ),
    Mutant(
        name="top k: student's temperature forgotten",
        file=FILE,
        old="return (top_k_reverse_kl_N(scaled(logits_NV, scale, places_N), teacher",
        new="return (top_k_reverse_kl_N(logits_NV, teacher",
    ),
    Mutant(
        name="forward KL: student's temperature forgotten",
        file=FILE,
        old="return (forward_kl_N(scaled(logits_NV, scale, places_N), teacher",
        new="return (forward_kl_N(logits_NV, teacher",
    ),
    Mutant(
        name="sampled: temperature forgotten in the advantage",
        file=FILE,
        old="logp_NV = scaled(logits_NV, scale, places_N).log_softmax(-1)\n        log_ratio_NV",
        new="logp_NV = logits_NV.log_softmax(-1)\n        log_ratio_NV",
    ),
    Mutant(
        name="sampled: temperature forgotten in the log-prob",
        file=FILE,
        old="target_logprobs_BT(logits_BTV, target_BT, mask_BT, temperature), advantages_BT)",
        new="target_logprobs_BT(logits_BTV, target_BT, mask_BT), advantages_BT)",
    ),
    Mutant(
        name="sampled: sign of the advantage",
        file=FILE,
        old="advantage_N = -log_ratio_NV.gather",
        new="advantage_N = log_ratio_NV.gather",
    ),
    Mutant(
        name="sampled: detach forgotten",
        file=FILE,
        old="    with torch.no_grad():  # apart",
        new="    with torch.enable_grad():  # apart",
    ),
    Mutant(
        name="sampled at scored tokens: detach forgotten",
        file=FILE,
        old="return (teacher_logprobs_BT - student_logprobs_BT).detach()",
        new="return teacher_logprobs_BT - student_logprobs_BT",
    ),
    Mutant(
        name="sampled at scored tokens: student minus teacher",
        file=FILE,
        old="return (teacher_logprobs_BT - student_logprobs_BT).detach()",
        new="return (student_logprobs_BT - teacher_logprobs_BT).detach()",
    ),
    Mutant(
        name="variance reduced: baseline with the wrong sign",
        file=FILE,
        old="advantage_N + (logp_NV.exp() * log_ratio_NV).sum(-1) if baseline",
        new="advantage_N - (logp_NV.exp() * log_ratio_NV).sum(-1) if baseline",
    ),
    Mutant(
        name="variance reduced: baseline forgotten",
        file=FILE,
        old="mask_BT, teacher, temperature, baseline=True)",
        new="mask_BT, teacher, temperature, baseline=False)",
    ),
    Mutant(
        name="top k: tail dropped",
        file=FILE,
        old=".sum(-1) + tail_N * tail_ratio_N",
        new=".sum(-1)",
    ),
    Mutant(
        name="top k: the teacher's most likely tokens as head",
        file=FILE,
        old="head_NK = logp_NV.topk(k, dim=-1).indices",
        new="head_NK = teacher_logprobs_NV.topk(k, dim=-1).indices",
    ),
    Mutant(
        name="top k: tail as one minus head, lost to rounding",
        file=FILE,
        old="tail_N = p_NV.scatter(-1, head_NK, 0.0).sum(-1)",
        new="tail_N = 1 - p_NV.gather(-1, head_NK).sum(-1)",
    ),
    Mutant(
        name="top k: tail not differentiated",
        file=FILE,
        old="tail_N = p_NV.scatter(-1, head_NK, 0.0).sum(-1)",
        new="tail_N = p_NV.detach().scatter(-1, head_NK, 0.0).sum(-1)",
    ),
    Mutant(
        name="top k: renormalised head",
        file=FILE,
        old="return (p_NV.gather(-1, head_NK) * log_ratio_NK).sum(-1) + tail_N * tail_ratio_N",
        new="return (logits_NV.gather(-1, head_NK).softmax(-1) * log_ratio_NK).sum(-1)",
    ),
    Mutant(
        name="top k: a head larger than the vocabulary taken silently",
        file=FILE,
        old="if not 1 <= k <= logits_BTV.shape[-1]:",
        new="if not 1 <= k:",
    ),
    Mutant(
        name="forward KL: student minus teacher",
        file=FILE,
        old="gap_NV = teacher_logprobs_NV - logits_NV.log_softmax(-1)",
        new="gap_NV = logits_NV.log_softmax(-1) - teacher_logprobs_NV",
    ),
    Mutant(
        name="forward KL under the student",
        file=FILE,
        old="return (teacher_logprobs_NV.exp() * gap_NV).sum(-1)",
        new="return (logits_NV.softmax(-1) * gap_NV).sum(-1)",
    ),
    Mutant(
        name="forward KL: 0 log 0 is not a number",
        file=FILE,
        old='gap_NV = gap_NV.masked_fill(teacher_logprobs_NV == float("-inf"), 0.0)',
        new="gap_NV = gap_NV + 0.0",
    ),
    Mutant(
        name="reverse KL: 0 log 0 is not a number",
        file=FILE,
        old='.masked_fill(logp_NV == float("-inf"), 0.0)',
        new="",
    ),
]
