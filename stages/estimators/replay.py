"""Replay of archived elites, one per distinct strategy: the term itself, and which elites it takes.

The uniform term is the forward KL from a target uniform over a prompt's elites, whatever their frequency in
the base. None of these ever enters group statistics or importance-ratio metrics.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.errors import GuardError


def replay_nll_B(logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Per elite, the mean negative log-probability of its tokens, in nats.

    Raises GuardError if an elite has no token.
    """
    return -_token_mean_B(logprobs_BT, mask_BT)


def elite_weights(prompt_ids: Sequence[str]) -> list[float]:
    """The weight of each elite: prompts count alike, and the elites of one prompt count alike. They sum to 1.

    `prompt_ids` are those of the whole batch, one per elite, in any order; a micro-batch takes its share of
    the weights, so that the gradient does not depend on the split.
    """
    elites = Counter(prompt_ids)
    return [1.0 / (len(elites) * elites[prompt]) for prompt in prompt_ids]


def jensen_shannon_BT(logprobs_BT: Tensor, base_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """f(u) = u ln u - (u + 1) ln((u + 1) / 2) per token with u = policy / base (DPH-RL, arXiv 2509.07430).

    For tokens drawn from the base its mean is KL(policy || m) + KL(base || m) with m their midpoint: twice
    the Jensen-Shannon divergence, in nats. The gradient is u ln(2u / (1 + u)) grad log policy: it fades with
    u, so a token that the policy has all but lost is not called back, as the forward KL does; and a token
    that the policy prefers to the base is pushed down. `base_logprobs_BT` are constants. 0 outside the mask.
    """
    inside_BT = mask_BT.bool()
    zero = logprobs_BT.new_zeros(())
    log_u_BT = (logprobs_BT - base_logprobs_BT.detach()).where(inside_BT, zero)
    u_BT = log_u_BT.exp()
    # ln u - ln(1 + u) and -ln(1 + u), without forming u + 1: small u keeps its digits.
    value_BT = u_BT * logsigmoid(log_u_BT) + logsigmoid(-log_u_BT) + (u_BT + 1) * math.log(2)
    return value_BT.where(inside_BT, zero)


def floor_weights_B(
    logprobs_BT: Tensor, mask_BT: Tensor, floor: float, max_weight: float
) -> tuple[Tensor, int]:
    """Weights of elites by how far they fell, detached, and how many of them were capped.

    An elite's probability is the geometric mean over its tokens. Its weight is 0 from `floor` on, and
    floor / probability below, at most `max_weight`. Raises GuardError if an elite has no token.
    """
    with torch.no_grad():
        log_fall_B = math.log(floor) - _token_mean_B(logprobs_BT, mask_BT)
        weights_B = log_fall_B.exp()
        capped = int((weights_B > max_weight).sum())
        return weights_B.clamp(max=max_weight).where(log_fall_B > 0, weights_B.new_zeros(())), capped


def narrow_prompts(
    found: Mapping[str, AbstractSet[str]], archived: Mapping[str, AbstractSet[str]]
) -> set[str]:
    """The step's prompts whose group shows fewer correct strategies than their archive holds.

    `found`: the signatures of each of the step's prompts, empty where nothing was correct. `archived`: those
    of every archived prompt; a prompt without an archive has nothing to replay.
    """
    return {prompt for prompt, seen in found.items() if len(seen) < len(archived.get(prompt, ()))}


def _token_mean_B(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean of each row over its own tokens."""
    inside_BT = mask_BT.bool()
    tokens_B = inside_BT.sum(-1)
    if not tokens_B.all():
        raise GuardError("an elite has no token to replay: its mask is empty")
    return values_BT.where(inside_BT, values_BT.new_zeros(())).sum(-1) / tokens_B
