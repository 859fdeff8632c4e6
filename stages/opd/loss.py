"""The loss of a distillation step as the trainer takes it; it holds no task reward (methods.md 6(c))."""

from dataclasses import dataclass, field

from torch import Tensor

from stages.engines.agreement import Agreement
from stages.engines.batch import TokenBatch, target_logprobs_BT
from stages.estimators.losses import token_mean
from stages.estimators.opd import reverse_kl_BT
from stages.opd.teacher import Teacher


@dataclass
class DistillationTerm:
    """One batch of the student's own samples; sums are of the micro-batches that have passed through it."""

    batch: TokenBatch
    teacher: Teacher
    recorded_BT: Tensor  # log-probs as sampled
    temperature: float
    reverse_kl: float = 0.0
    agreement: Agreement = field(default_factory=Agreement)

    def loss(self, logits_BTV: Tensor, micro: TokenBatch) -> Tensor:
        """Mean over the batch's sampled tokens of KL(student || teacher), at the sampling temperature."""
        scaled_BTV = logits_BTV / self.temperature
        kl_BT = reverse_kl_BT(scaled_BTV, self.teacher.logits_BTV(micro) / self.temperature)
        share = token_mean(kl_BT, micro.mask_BT, self.batch.target_count)
        self.reverse_kl += float(share.detach())
        sampled_BT = target_logprobs_BT(scaled_BTV.detach(), micro)
        self.agreement.add(sampled_BT, micro.take(self.recorded_BT), micro.mask_BT)
        return share
