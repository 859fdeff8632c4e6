"""The two terms of a step as the trainer takes them: GRPO over whole groups, and replay over elites."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.engines.agreement import Agreement
from stages.engines.batch import TokenBatch, align_to_targets, completion_batch, target_logprobs_BT
from stages.engines.protocol import MicroBatchLoss
from stages.estimators.advantages import GroupAdvantages
from stages.estimators.entropy import entropy_BT
from stages.estimators.losses import (
    RatioSums,
    clipped_policy_gradient_BT,
    masked_sum,
    ratio_sums,
    token_mean,
)
from stages.estimators.replay import elite_weights, replay_nll_B
from stages.rl.params import RlParams
from stages.rl.replay import ReplayElite
from stages.sampling.judged import Judged


@dataclass
class GrpoTerm:
    """One batch and its loss; the sums are of the micro-batches that have passed through it."""

    batch: TokenBatch
    old_logprobs_BT: Tensor
    advantages_B: Tensor
    params: RlParams
    ratios: RatioSums = field(default_factory=RatioSums)
    entropy_sum: float = 0.0
    agreement: Agreement = field(default_factory=Agreement)
    loss_sum: float = 0.0

    def loss(self, logits_BTV: Tensor, micro: TokenBatch) -> Tensor:
        """Token-level PPO clip; the ratio is taken at the temperature that sampled."""
        scaled_BTV = logits_BTV / self.params.sampling.temperature
        logprobs_BT = target_logprobs_BT(scaled_BTV, micro)
        old_BT = micro.take(self.old_logprobs_BT)
        loss_BT = clipped_policy_gradient_BT(
            logprobs_BT,
            old_BT,
            micro.take_rows(self.advantages_B).unsqueeze(1),
            self.params.clip_low,
            self.params.clip_high,
        )
        share = token_mean(loss_BT, micro.mask_BT, self.batch.target_count)
        with torch.no_grad():
            self.ratios += ratio_sums(
                logprobs_BT, old_BT, micro.mask_BT, self.params.clip_low, self.params.clip_high
            )
            self.agreement.add(logprobs_BT, old_BT, micro.mask_BT)
            self.entropy_sum += float(masked_sum(entropy_BT(scaled_BTV), micro.mask_BT))
            self.loss_sum += float(share)
        return share

    def metrics(self) -> dict[str, float]:
        return {
            "loss": self.loss_sum,
            "entropy": self.entropy_sum / max(1.0, self.ratios.tokens),
            "logprob_gap": self.agreement.gap,
            **self.ratios.metrics(),
        }


def grpo_term(
    groups: Sequence[Sequence[Judged]], advantages: GroupAdvantages, params: RlParams, pad_id: int
) -> GrpoTerm:
    """The informative groups, whole, as one batch; a sample without a verdict has no gradient and is out."""
    kept = [
        (sample, float(advantages.values_PG[place, sample.sample]))
        for place, group in enumerate(groups)
        if advantages.informative_P[place]
        for sample in group
        if sample.scorable
    ]
    batch = completion_batch(
        [sample.prompt_ids for sample, _ in kept],
        [sample.rollout.completion_ids for sample, _ in kept],
        pad_id,
    )
    old_BT = align_to_targets(batch, [sample.rollout.logprobs for sample, _ in kept])
    return GrpoTerm(batch, old_BT, torch.tensor([advantage for _, advantage in kept]), params)


def replay_term(
    elites: Sequence[ReplayElite], coefficient: float, pad_id: int, shares: list[float]
) -> tuple[TokenBatch, MicroBatchLoss]:
    """Coefficient x mean over prompts of the mean over elites of -log pi / length (methods.md 1(b))."""
    batch = completion_batch(
        [elite.prompt_ids for elite in elites], [elite.completion_ids for elite in elites], pad_id
    )
    weights_B = torch.tensor(elite_weights([elite.prompt_id for elite in elites]))

    def loss(logits_BTV: Tensor, micro: TokenBatch) -> Tensor:
        nll_B = replay_nll_B(target_logprobs_BT(logits_BTV, micro), micro.mask_BT)
        share = (micro.take_rows(weights_B) * nll_B).sum()
        shares.append(float(share.detach()))
        return coefficient * share

    return batch, loss
