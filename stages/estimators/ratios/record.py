"""What must be on record about three policies before a ratio may be taken.

The behaviour policy drew the tokens, the proximal one is the trainer's when the batch's first update begins,
the target is the one being trained (methods.md 9(b)). A ratio is only one if its two log-probs are of the
distributions that it claims: same temperature, same support, the versions that are said.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from stages.errors import GuardError

if TYPE_CHECKING:
    from stages.estimators.distribution import TopHead

SUPPORT_MASS_GAP = 1e-3  # nats that float32 log-probs of a whole support may miss of log 1


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the sampler recorded while it drew the tokens."""

    logprobs_BT: Tensor
    """Of the drawn tokens under the distribution that drew them: temperature and filters included."""
    mask_BT: Tensor
    """True at tokens that the sampler drew; the other fields hold anything elsewhere."""
    weight_version_BT: Tensor
    """int64: the version of the weights that drew each token."""
    scored_version_BT: Tensor
    """int64: the version of the weights that each log-prob was computed with."""
    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    head: "TopHead | None" = None
    """The sampler's likeliest tokens; a filtered sampler's whole support, renormalised."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """The trainer's own log-probs of the same tokens before the batch's first update: the proximal policy."""

    logprobs_BT: Tensor
    version: int
    temperature: float


def require_same_distribution(behaviour: Behaviour, temperature: float, on_support: bool = False) -> None:
    """Raises GuardError unless the trainer can compute log-probs of the distribution that sampled.

    A temperature of its own makes a ratio of 2 out of equal weights; a filter only of the sampler leaves
    the log of the kept mass in every ratio.

    Args:
        temperature: that of the trainer's log-probs.
        on_support: the trainer renormalises over the recorded support (`on_support_NV`). Without that, and
            where the head does not hold all of the mass, `top_p` and `top_k` are refused.
    """
    if behaviour.temperature <= 0:
        raise GuardError(
            f"samples at temperature {behaviour.temperature} have no importance ratio: "
            "set sampling.temperature above 0"
        )
    if behaviour.temperature != temperature:
        raise GuardError(
            f"the batch was sampled at temperature {behaviour.temperature} and is to be scored at "
            f"{temperature}: score it at the temperature that sampled"
        )
    if behaviour.top_p >= 1 and behaviour.top_k <= 0:
        return
    filters = f"top_p {behaviour.top_p}, top_k {behaviour.top_k}"
    if behaviour.head is None or not on_support:
        raise GuardError(
            f"the batch was sampled with {filters} and is not scored on that support: "
            "record the support as the head and score on it, or sample with top_p 1 and top_k 0"
        )
    mass_N = behaviour.head.logprobs_BTK.logsumexp(-1)[behaviour.mask_BT.bool()]
    if not bool((mass_N.abs() <= SUPPORT_MASS_GAP).all()):
        raise GuardError(
            f"the batch was sampled with {filters} and its head holds only a part of the support: "
            "record a larger head, or sample with top_p 1 and top_k 0"
        )


def require_drawn(behaviour: Behaviour, policy_version: int) -> None:
    """Raises GuardError for a batch whose record cannot be what drew it, whatever is done with it.

    Those are log-probs that another version computed than drew the token ("rescored": the ratio would forget
    how unlikely the draw was), and tokens of a version that does not exist yet.

    Args:
        policy_version: the version of the trainer's weights at this batch's first update.
    """
    drawn = behaviour.mask_BT.bool()
    version, scored = behaviour.weight_version_BT[drawn], behaviour.scored_version_BT[drawn]
    rescored = int((version != scored).sum())
    if rescored:
        raise GuardError(
            f"{rescored} tokens carry log-probs of other weights than drew them: keep those that the sampler "
            "computed while it drew, and do not rescore a batch with newer weights"
        )
    if bool((version > policy_version).any()):
        raise GuardError(
            f"a token was drawn by version {int(version.max())}, newer than the policy's {policy_version}: "
            "resume the trainer and the batch from the same step"
        )


def require_recomputed(behaviour: Behaviour, recomputed: Recomputed | None, policy_version: int) -> Tensor:
    """The proximal log-probs: the recomputed ones, or of a batch that is all fresh also the sampler's own.

    Raises GuardError as `require_drawn`, and for a stale batch without log-probs of the policy of this very
    step: those of an earlier step take the policy's own movement out of the ratio.
    """
    require_drawn(behaviour, policy_version)
    version = behaviour.weight_version_BT[behaviour.mask_BT.bool()]
    if recomputed is None:
        if bool((version < policy_version).any()):
            raise GuardError(
                f"the batch holds tokens of version {int(version.min())} and the policy is at "
                f"{policy_version}: recompute its log-probs with the policy of this step"
            )
        return behaviour.logprobs_BT
    if recomputed.version != policy_version:
        raise GuardError(
            f"the batch's log-probs were recomputed at version {recomputed.version} and the policy is at "
            f"{policy_version}: recompute them with the policy of this step"
        )
    if recomputed.temperature != behaviour.temperature:
        raise GuardError(
            f"the batch's log-probs were recomputed at temperature {recomputed.temperature} and sampled at "
            f"{behaviour.temperature}: recompute them at the temperature that sampled"
        )
    return recomputed.logprobs_BT
