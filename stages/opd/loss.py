"""The loss of a distillation step as the trainer takes it; it holds no task reward (methods.md 6(c))."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.engines.agreement import Agreement, recomputed_logprobs_BT
from stages.engines.batch import TokenBatch
from stages.engines.protocol import Forward
from stages.estimators.blockwise import target_logprobs_BT
from stages.estimators.distillation import (
    forward_kl_BT,
    reverse_kl_BT,
    sampled_terms,
    top_k_reverse_kl_BT,
    variance_reduced_terms,
)
from stages.estimators.distribution import Distribution
from stages.estimators.losses import BatchCounts, aggregate, masked_sum, policy_gradient_BT
from stages.estimators.params import (
    DistillationChoice,
    ForwardKl,
    FullVocabularyKl,
    SampledKl,
    TokenMean,
    TopKKl,
    VarianceReducedKl,
)
from stages.opd.teacher import Teacher


@dataclass
class DistillationTerm:
    """One batch of the student's own samples; sums are of the micro-batches that have passed through it.

    `reverse_kl`: nats a token; of the forms that do not have it, an estimate from the sampled tokens.
    """

    batch: TokenBatch
    teacher: Teacher
    recorded_BT: Tensor  # log-probs as sampled
    temperature: float
    estimator: DistillationChoice
    reverse_kl: float = 0.0
    agreement: Agreement = field(default_factory=Agreement)

    def loss(self, forward: Forward, micro: TokenBatch) -> Tensor:
        """Its share of the mean over the batch's sampled tokens, both models at the sampling temperature."""
        counts = BatchCounts.of(self.batch.mask_BT)
        teacher = self.teacher.distribution(micro, self.temperature)
        with torch.no_grad():
            sampled_BT = target_logprobs_BT(
                forward.logits_BTV, micro.target_BT, micro.mask_BT, self.temperature
            )
            self.agreement.add(sampled_BT, micro.take(self.recorded_BT), micro.mask_BT)
        loss_BT = self._loss_BT(forward.logits_BTV, micro, teacher)
        if isinstance(self.estimator, FullVocabularyKl | TopKKl):
            kl_BT = loss_BT.detach()
        else:
            kl_BT = sampled_BT - recomputed_logprobs_BT(teacher, micro)
        self.reverse_kl += float(masked_sum(kl_BT, micro.mask_BT)) / counts.tokens
        return aggregate(loss_BT, micro.mask_BT, TokenMean(), counts)

    def _loss_BT(self, logits_BTV: Tensor, micro: TokenBatch, teacher: Distribution) -> Tensor:
        target_BT, mask_BT, temperature = micro.target_BT, micro.mask_BT, self.temperature
        match self.estimator:
            case FullVocabularyKl():
                return reverse_kl_BT(logits_BTV, mask_BT, teacher, temperature)
            case TopKKl(k=k):
                return top_k_reverse_kl_BT(logits_BTV, mask_BT, teacher, k, temperature)
            case ForwardKl():
                return forward_kl_BT(logits_BTV, mask_BT, teacher, temperature)
            case SampledKl():
                terms = sampled_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)
            case VarianceReducedKl():
                terms = variance_reduced_terms(logits_BTV, target_BT, mask_BT, teacher, temperature)
        fresh_BT = torch.ones_like(terms.logprobs_BT)  # the weight of samples of the policy itself
        return policy_gradient_BT(terms.logprobs_BT, fresh_BT, terms.advantages_BT, mask_BT)
