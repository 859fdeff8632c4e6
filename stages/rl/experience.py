"""A step's samples as one batch: what was recorded when they were drawn, and what each is worth.

Denominators count every sample of the step that has a verdict, those of groups without a gradient too: the
loss is then a mean over prompts, whichever of them have something to teach.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stages.engines.batch import TokenBatch, align_to_targets, completion_batch
from stages.engines.params import Sampling
from stages.errors import GuardError
from stages.estimators.advantages import gae_BT, terminal_rewards_BT
from stages.estimators.distribution import TopHead
from stages.estimators.losses import BatchCounts
from stages.estimators.params import Gae
from stages.estimators.ratios import (
    Behaviour,
    Recomputed,
    require_drawn,
    require_recomputed,
    require_same_distribution,
)
from stages.rl.params import RlParams
from stages.rl.policy import Policy
from stages.rl.worth import Worth
from stages.sampling.judged import Judged


@dataclass(frozen=True)
class Experience:
    """`advantages_BT` are [B, 1], or [B, T] from a critic, whose `returns_BT` are then what it learns.

    `proximal_BT`: the policy's log-probs before the first of several updates. `reference_BT`: the KL
    penalty's. Where they are None, nothing asks for them.
    """

    batch: TokenBatch
    counts: BatchCounts
    behaviour: Behaviour
    rewards_B: Tensor
    advantages_BT: Tensor
    returns_BT: Tensor | None = None
    proximal_BT: Tensor | None = None
    reference_BT: Tensor | None = None


def experience(
    groups: Sequence[Sequence[Judged]], worth: Worth, params: RlParams, pad_id: int
) -> Experience | None:
    """The informative groups, whole; a sample without a verdict has no gradient and is out. None: nothing.

    A KL penalty is about every sample, so with one all groups are in.
    """
    places = [
        (place, sample)
        for place, group in enumerate(groups)
        for sample in group
        if sample.scorable and (worth.advantages.informative_P[place] or params.kl is not None)
    ]
    if not places:
        return None
    kept = [sample for _, sample in places]
    drew = one_sampling(kept)
    scorable = [sample for group in groups for sample in group if sample.scorable]
    counts = BatchCounts(
        tokens=sum(len(sample.rollout.completion_ids) for sample in scorable), sequences=len(scorable)
    )
    batch = completion_batch(
        [sample.prompt_ids for sample in kept], [sample.rollout.completion_ids for sample in kept], pad_id
    )
    at = torch.tensor([place for place, _ in places]), torch.tensor([s.sample for s in kept])
    return Experience(
        batch=batch,
        counts=counts,
        behaviour=Behaviour(
            mask_BT=batch.mask_BT,
            logprobs_BT=align_to_targets(batch, [sample.rollout.logprobs for sample in kept]),
            weight_version_BT=versions_BT(batch, kept, [sample.rollout.weight_version for sample in kept]),
            scored_version_BT=versions_BT(batch, kept, [sample.rollout.scored_version for sample in kept]),
            temperature=drew.temperature,
            top_p=drew.top_p,
            top_k=drew.top_k,
            head=recorded_head(batch, kept),
        ),
        rewards_B=worth.rewards_PG[at],
        advantages_BT=worth.advantages.values_PG[at].unsqueeze(1),
    )


def one_sampling(samples: Sequence[Judged]) -> Sampling:
    """What drew all of these, as the engine recorded it; raises GuardError if it was not one distribution."""
    found = {sample.rollout.sampling for sample in samples}
    if len(found) > 1:
        raise GuardError(
            f"the batch was sampled in {len(found)} different ways, and a loss is at one temperature and "
            "support: sample each batch with one setting"
        )
    return found.pop()


def versions_BT(batch: TokenBatch, samples: Sequence[Judged], versions: Sequence[int]) -> Tensor:
    """One version a row, at its trained tokens; int64."""
    values = [
        [float(version)] * len(sample.rollout.completion_ids)
        for sample, version in zip(samples, versions, strict=True)
    ]
    return align_to_targets(batch, values).long()


def recorded_head(batch: TokenBatch, samples: Sequence[Judged]) -> TopHead | None:
    """The sampler's head at every trained position, if it was recorded."""
    recorded = [sample.rollout.head_ids for sample in samples]
    if recorded[0] is None:
        return None
    size = len(recorded[0][0])
    ids_BTK = torch.zeros((*batch.mask_BT.shape, size), dtype=torch.long)
    logprobs_BTK = torch.full((*batch.mask_BT.shape, size), float("-inf"))
    ids_BTK[batch.mask_BT] = torch.tensor([head for ids in recorded for head in ids or []])
    logprobs_BTK[batch.mask_BT] = torch.tensor(
        [head for sample in samples for head in sample.rollout.head_logprobs or []]
    )
    return TopHead(ids_BTK, logprobs_BTK)


def scored(taken: Experience, policy: Policy, params: RlParams, version: int) -> Experience:
    """The same samples with what only the policy, its critic and its reference can say of them.

    `version` is the policy's, in steps. Raises GuardError for a record that this policy's loss must not use.
    """
    temperature, mask_BT = params.sampling.temperature, taken.batch.mask_BT
    require_same_distribution(taken.behaviour, temperature)
    require_drawn(taken.behaviour, version)
    if policy.reference is not None:
        reference_BT = policy.reference.target_logprobs_BT(taken.batch, temperature)
        taken = replace(taken, reference_BT=reference_BT)
    if params.updates_per_batch == 1 and not isinstance(params.advantage, Gae):
        return taken  # the forward pass of the only update says it all
    scores = policy.trainer.score(taken.batch, temperature)
    recomputed = Recomputed(logprobs_BT=scores.logprobs_BT, version=version, temperature=temperature)
    require_recomputed(taken.behaviour, recomputed, version)
    taken = replace(taken, proximal_BT=recomputed.logprobs_BT)
    if isinstance(params.advantage, Gae) and scores.values_BT is not None:
        rewards_BT = terminal_rewards_BT(taken.rewards_B, mask_BT)
        discount, trace = params.advantage.discount, params.advantage.trace
        advantages_BT, returns_BT = gae_BT(rewards_BT, scores.values_BT.cpu(), mask_BT, discount, trace)
        taken = replace(taken, advantages_BT=advantages_BT, returns_BT=returns_BT)
    return taken
