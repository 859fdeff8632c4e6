"""The policy's term of a step as the trainer takes it: ratio, centering, loss, penalty, aggregation."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stages.engines.agreement import Agreement, recomputed_logprobs_BT
from stages.engines.batch import TokenBatch
from stages.engines.protocol import Forward, RolloutEngine
from stages.errors import GuardError
from stages.estimators.advantages import value_loss_BT
from stages.estimators.blockwise import target_logprobs_BT
from stages.estimators.centering import Centred, centred_logprobs, centred_policy_gradient_BT
from stages.estimators.distribution import Distribution, TopHead
from stages.estimators.entropy import entropy_BT
from stages.estimators.losses import (
    aggregate,
    clipped_BT,
    clipped_surrogate_BT,
    k1_BT,
    kl_loss_BT,
    masked_sum,
    policy_gradient_BT,
)
from stages.estimators.params import (
    FullVocabulary,
    Gspo,
    Level,
    PpoClip,
    Ratio,
    TokenMean,
    Uncorrected,
    Unregularised,
)
from stages.estimators.ratios import RatioSums, Weights, observe, weights_BT
from stages.estimators.rules import weight_of
from stages.rl.experience import Experience
from stages.rl.params import RlParams

NO_RATIO = Ratio(regulariser=Uncorrected())
EXACT_TOKEN_RATIO = Ratio(regulariser=Unregularised())


@dataclass
class PolicyTerm:
    """One update on a batch; the sums are of the micro-batches that have passed through it.

    `version`: of the policy, in steps. `first_update`: the policy is still the one that `version` names, and
    its proximal log-probs are those of the forward pass.
    """

    taken: Experience
    params: RlParams
    engine: RolloutEngine
    version: int
    first_update: bool
    ratios: RatioSums = field(default_factory=RatioSums)
    agreement: Agreement = field(default_factory=Agreement)  # of trainer and engine on fresh samples
    sampler_agreement: Agreement = field(default_factory=Agreement)  # of the engine with what it recorded
    sums: dict[str, float] = field(default_factory=dict)

    @property
    def batch(self) -> TokenBatch:
        return self.taken.batch

    def loss(self, forward: Forward, micro: TokenBatch) -> Tensor:
        """The micro-batch's share of the batch's loss; log-probs are at the temperature that sampled."""
        params, counts = self.params, self.taken.counts
        behaviour_BT = micro.take(self.taken.behaviour.logprobs_BT)
        sampler = self._sampler(micro)
        centred = self._centred(forward, micro, sampler)
        logprobs_BT = centred.logprobs_BT if centred else self._logprobs_BT(forward, micro)
        proximal_BT = logprobs_BT.detach()
        if not self.first_update and self.taken.proximal_BT is not None:
            proximal_BT = micro.take(self.taken.proximal_BT)
        numerator_BT = proximal_BT if isinstance(params.loss, PpoClip | Gspo) else logprobs_BT.detach()
        weights = weights_BT(numerator_BT - behaviour_BT, micro.mask_BT, weight_of(params.loss) or NO_RATIO)

        loss_BT = self._policy_loss_BT(micro, logprobs_BT, proximal_BT, weights, centred)
        if params.kl is not None and self.taken.reference_BT is not None:
            kl_BT = kl_loss_BT(
                params.kl.kind, logprobs_BT, micro.take(self.taken.reference_BT), micro.mask_BT
            )
            # at every prefix the expectation over the policy, whoever sampled and however often it moved
            exact = weights_BT(logprobs_BT.detach() - behaviour_BT, micro.mask_BT, EXACT_TOKEN_RATIO)
            loss_BT = loss_BT + params.kl.coefficient * exact.values_BT * kl_BT
            k1 = k1_BT(logprobs_BT, micro.take(self.taken.reference_BT))
            self._add("reference_kl", masked_sum(exact.values_BT * k1, micro.mask_BT))
        share = aggregate(loss_BT, micro.mask_BT, params.aggregation, counts)
        self._count(forward, micro, logprobs_BT.detach(), proximal_BT, weights)
        if centred is not None and sampler is not None:
            self._count_centering(micro, centred, sampler)
        self._add("loss", share)
        if self.taken.returns_BT is not None and forward.values_BT is not None:
            value_BT = value_loss_BT(forward.values_BT, micro.take(self.taken.returns_BT), micro.mask_BT)
            value_share = aggregate(value_BT, micro.mask_BT, TokenMean(), counts)
            self._add("value_loss", value_share)
            share = share + value_share  # of other weights: neither moves what the other does
        return share

    def _policy_loss_BT(
        self,
        micro: TokenBatch,
        logprobs_BT: Tensor,
        proximal_BT: Tensor,
        weights: Weights,
        centred: Centred | None,
    ) -> Tensor:
        advantages_BT, mask_BT = micro.take_advantages(self.taken.advantages_BT), micro.mask_BT
        if centred is not None:
            return centred_policy_gradient_BT(
                logprobs_BT, weights.values_BT, centred.corrections_BT, advantages_BT, mask_BT
            )
        if (clip := self._clip()) is not None:
            surrogate_BT = clipped_surrogate_BT(logprobs_BT, proximal_BT, advantages_BT, mask_BT, *clip)
            return weights.values_BT * surrogate_BT
        return policy_gradient_BT(logprobs_BT, weights.values_BT, advantages_BT, mask_BT)

    def _clip(self) -> tuple[Level, float, float] | None:
        loss = self.params.loss
        if isinstance(loss, PpoClip | Gspo):
            level = Level.TOKEN if isinstance(loss, PpoClip) else Level.GEOMETRIC
            return level, loss.clip_low, loss.clip_high
        return None

    def _logprobs_BT(self, forward: Forward, micro: TokenBatch) -> Tensor:
        temperature = self.params.sampling.temperature
        return target_logprobs_BT(forward.logits_BTV, micro.target_BT, micro.mask_BT, temperature)

    def _centred(
        self, forward: Forward, micro: TokenBatch, sampler: Distribution | TopHead | None
    ) -> Centred | None:
        ratio, temperature = weight_of(self.params.loss), self.params.sampling.temperature
        if sampler is None or ratio is None:
            return None
        return centred_logprobs(
            forward.logits_BTV, micro.target_BT, micro.mask_BT, sampler, ratio.regulariser, temperature
        )

    def _sampler(self, micro: TokenBatch) -> Distribution | TopHead | None:
        """What drew the samples: recomputed with its weights, which the engine still holds, or recorded."""
        if self.params.centering is None:
            return None
        if isinstance(self.params.centering, FullVocabulary):
            return self.engine.distribution(micro, self.params.sampling.temperature)
        head = self.taken.behaviour.head
        assert head is not None  # collect asked for it
        return TopHead(micro.take(head.ids_BTK), micro.take(head.logprobs_BTK))

    @torch.no_grad()
    def _count(
        self,
        forward: Forward,
        micro: TokenBatch,
        logprobs_BT: Tensor,
        proximal_BT: Tensor,
        weights: Weights,
    ) -> None:
        mask_BT, record = micro.mask_BT, self.taken.behaviour
        behaviour_BT = micro.take(record.logprobs_BT)
        age_BT = self.version - micro.take(record.weight_version_BT)
        clipped = None
        if (clip := self._clip()) is not None:
            advantages_BT = micro.take_advantages(self.taken.advantages_BT)
            clipped = clipped_BT(logprobs_BT, proximal_BT, advantages_BT, mask_BT, *clip)
        self.ratios += observe(logprobs_BT - behaviour_BT, mask_BT, weights, clipped, age_BT)
        if self.first_update:  # the policy is the one that a fresh sample came from
            self.agreement.add(logprobs_BT, behaviour_BT, mask_BT & (age_BT == 0))
        temperature = self.params.sampling.temperature
        self._add("entropy", masked_sum(entropy_BT(forward.logits_BTV, mask_BT, temperature), mask_BT))

    @torch.no_grad()
    def _count_centering(self, micro: TokenBatch, centred: Centred, sampler: Distribution | TopHead) -> None:
        self._add("drift", masked_sum(centred.drift_BT, micro.mask_BT))
        if isinstance(sampler, TopHead):
            self._add("head_mass", masked_sum(centred.head_mass_BT, micro.mask_BT))
            self._add("floored", masked_sum(centred.floored_BT, micro.mask_BT))
        elif self.first_update:
            recorded_BT = micro.take(self.taken.behaviour.logprobs_BT)
            self.sampler_agreement.add(recomputed_logprobs_BT(sampler, micro), recorded_BT, micro.mask_BT)

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(value.detach())

    def require_agreement(self, limit: float, step: int) -> dict[str, float | None]:
        """The first update's gaps in nats a token; None where there was nothing to compare.

        Raises PosttrainError where the engine does not hold the trainer's weights, or not those that sampled;
        GuardError where centering by the exact ratio, whose mean is 0, would have moved something.
        """
        gaps: dict[str, float | None] = {}
        for name, agreement in (("logprob_gap", self.agreement), ("sampler_gap", self.sampler_agreement)):
            agreement.require(limit, step)
            gaps[name] = agreement.gap if agreement.tokens else None
        ratio, drift = weight_of(self.params.loss), self.sums.get("drift", 0.0)
        exact = ratio is not None and isinstance(ratio.regulariser, Unregularised)
        if exact and drift > limit * max(1.0, self.ratios.tokens):
            raise GuardError(
                f"the exact ratio's mean score is {drift / self.ratios.tokens:.1e} a token at step {step} "
                "and must be 0: the sampler's distribution is not over the trainer's vocabulary"
            )
        return gaps

    def metrics(self) -> dict[str, float]:
        per_token = {"entropy", "drift", "head_mass", "floored", "reference_kl"}
        ratios = self.ratios.metrics()
        ratios["truncated_ratios"] = ratios.pop("truncated")  # beside completions that were truncated
        return {
            **{
                name: value / max(1.0, self.ratios.tokens) if name in per_token else value
                for name, value in self.sums.items()
            },
            **ratios,
        }
