"""Losses per token, KL by its gradient, and aggregation over the whole batch."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/losses"
GRADIENT = "stages/estimators/losses/policy_gradient.py"
SURROGATE = "stages/estimators/losses/surrogate.py"
KL = "stages/estimators/losses/kl.py"
AGGREGATE = "stages/estimators/losses/aggregate.py"

MUTANTS = [
    Mutant(
        name="a differentiable weight or advantage is taken",
        file=GRADIENT,
        old='    """\n    require_constant(weights_BT, advantages_BT)\n',
        new='    """\n',
    ),
    Mutant(
        name="a differentiable advantage is taken",
        file=GRADIENT,
        old=', ("advantages", advantages_BT)]',
        new="]",
    ),
    Mutant(
        name="the weight is forgotten",
        file=GRADIENT,
        old="factor_BT = weights_BT * advantages_BT",
        new="factor_BT = torch.ones_like(weights_BT) * advantages_BT",
    ),
    Mutant(
        name="masked factors times zero: NaN in the gradient",
        file=GRADIENT,
        old="torch.where(mask_BT, -factor_BT, zero) *",
        new="-factor_BT *",
    ),
    Mutant(
        name="masked log-probs times zero: NaN in the value",
        file=GRADIENT,
        old="logprobs_BT.where(mask_BT, zero)",
        new="logprobs_BT",
    ),
    Mutant(
        name="optimistic clip: maximum for minimum",
        file=SURROGATE,
        old="-torch.minimum(",
        new="-torch.maximum(",
    ),
    Mutant(
        name="clip bounds exchanged",
        file=SURROGATE,
        old="ratio_BT.clamp(1 - clip_low, 1 + clip_high)",
        new="ratio_BT.clamp(1 - clip_high, 1 + clip_low)",
    ),
    Mutant(
        name="the level is forgotten",
        file=SURROGATE,
        old="    ratio_BT = ratio_log_BT(logprobs_BT - proximal_BT.detach(), mask_BT, level)",
        new="    ratio_BT = ratio_log_BT(logprobs_BT - proximal_BT.detach(), mask_BT, Level.TOKEN)",
    ),
    Mutant(
        name="detach of the proximal policy forgotten",
        file=SURROGATE,
        old="    ratio_BT = ratio_log_BT(logprobs_BT - proximal_BT.detach(), mask_BT, level)",
        new="    ratio_BT = ratio_log_BT(logprobs_BT - proximal_BT, mask_BT, level)",
    ),
    Mutant(
        name="detach of the advantage forgotten",
        file=SURROGATE,
        old="advantages_BT.detach()",
        new="advantages_BT",
    ),
    Mutant(
        name="masked advantages kept",
        file=SURROGATE,
        old="torch.where(mask_BT.bool(), advantages_BT.detach(), advantages_BT.new_zeros(()))",
        new="advantages_BT.detach().expand(mask_BT.shape)",
    ),
    Mutant(
        name="clipped tokens whatever the sign of the advantage",
        file=SURROGATE,
        old="(kept_BT > 0) & (ratio_BT > 1 + clip_high)",
        new="ratio_BT > 1 + clip_high",
    ),
    Mutant(
        name="ratios at the bound not counted",
        file=SURROGATE,
        old=" | ((kept_BT != 0) & (log_ratio_BT.abs() >= MAX_LOG_RATIO))",
        new="",
    ),
    Mutant(
        name="k1 as the reverse KL's loss",
        file=KL,
        old="return _log_ratio_BT(logprobs_BT, reference_BT, mask_BT).square() / 2",
        new="return _log_ratio_BT(logprobs_BT, reference_BT, mask_BT)",
    ),
    Mutant(
        name="k3 as the reverse KL's loss",
        file=KL,
        old="            return reverse_kl_loss_BT(",
        new="            return forward_kl_loss_BT(",
    ),
    Mutant(
        name="k3 of the inverse ratio",
        file=KL,
        old="log_ratio_BT = -_log_ratio_BT(logprobs_BT, reference_BT, mask_BT)",
        new="log_ratio_BT = _log_ratio_BT(logprobs_BT, reference_BT, mask_BT)",
    ),
    Mutant(
        name="a KL value that is differentiable",
        file=KL,
        old="@torch.no_grad()\ndef k1_BT",
        new="def k1_BT",
    ),
    Mutant(
        name="value k2 without its half",
        file=KL,
        old="(logprobs_BT - reference_BT).square() / 2",
        new="(logprobs_BT - reference_BT).square()",
    ),
    Mutant(
        name="detach of the reference forgotten",
        file=KL,
        old="reference_BT.detach()",
        new="reference_BT",
    ),
    Mutant(
        name="masked KL not masked: NaN from placeholders",
        file=KL,
        old="return log_ratio_BT.where(mask_BT.bool(), log_ratio_BT.new_zeros(()))",
        new="return log_ratio_BT",
    ),
    Mutant(
        name="an estimator named by its value taken as a loss",
        file=KL,
        old="    refuse_as_loss(kind)\n",
        new="    return reverse_kl_loss_BT(logprobs_BT, reference_BT, mask_BT)\n",
    ),
    Mutant(
        name="denominator of the micro-batch",
        file=AGGREGATE,
        old="return masked_sum(loss_BT, mask_BT) / counts.tokens",
        new="return masked_sum(loss_BT, mask_BT) / mask_BT.bool().sum().clamp(min=1)",
    ),
    Mutant(
        name="sequences of the micro-batch",
        file=AGGREGATE,
        old="sequence_mean_B(loss_BT, mask_BT).sum() / counts.sequences",
        new="sequence_mean_B(loss_BT, mask_BT).mean()",
    ),
    Mutant(
        name="mask in the numerator only",
        file=AGGREGATE,
        old="return kept_BT.sum(-1) / mask_BT.bool().sum(-1).clamp(min=1)",
        new="return kept_BT.sum(-1) / mask_BT.shape[-1]",
    ),
    Mutant(
        name="mask by multiplication: NaN from placeholders",
        file=AGGREGATE,
        old="return loss_BT.where(mask_BT.bool(), loss_BT.new_zeros(())).sum()",
        new="return (loss_BT * mask_BT).sum()",
    ),
    Mutant(
        name="a masked row counts as a sequence",
        file=AGGREGATE,
        old="int(mask_BT.any(1).sum())",
        new="int(mask_BT.shape[0])",
    ),
    Mutant(
        name="fixed length without the sequences",
        file=AGGREGATE,
        old="masked_sum(loss_BT, mask_BT) / (counts.sequences * length)",
        new="masked_sum(loss_BT, mask_BT) / length",
    ),
    Mutant(
        name="counts of the last micro-batch only",
        file=AGGREGATE,
        old="BatchCounts(self.tokens + other.tokens, self.sequences + other.sequences)",
        new="BatchCounts(other.tokens, other.sequences)",
    ),
    Mutant(
        name="an empty batch is divided by 1",
        file=AGGREGATE,
        old="if counts.tokens < 1 or counts.sequences < 1:",
        new="if False:",
    ),
]
