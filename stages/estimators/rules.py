"""Which choices of an estimator do not go together, each with a sentence that says what to do; torch-free.

The decision table is methods.md 3(c); the other rules are guards of sections 4, 6 and 9.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stages.estimators.params import (
    AdvantageChoice,
    AllCorrect,
    DrGrpo,
    Gae,
    Grpo,
    Gspo,
    Level,
    LossChoice,
    PpoClip,
    Ratio,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Rloo,
    Scope,
    SequenceMean,
    SignBalance,
    Uncorrected,
    Unregularised,
)

if TYPE_CHECKING:
    from stages.estimators.params import EstimatorParams


def refuse_impossible(params: "EstimatorParams") -> None:
    """Raises ValueError with the first reason why these choices cannot be meant together."""
    for reason in impossible(params):
        raise ValueError(reason)


def impossible(params: "EstimatorParams") -> Iterator[str]:
    """Every reason, in the order in which a user should mend them."""
    yield from _ratio(params)
    yield from _centering(params)
    yield from _prefix_bias(params)
    yield from _signbalance(params)
    yield from _selection(params)
    yield from _gspo(params)


def weight_of(loss: LossChoice) -> Ratio | None:
    """The importance weight that multiplies the score; None where a loss takes none against the sampler."""
    return loss.correction if isinstance(loss, PpoClip | Gspo) else loss.ratio


def is_exact(ratio: Ratio) -> bool:
    """Whether E_q[weight x score] is 0 at every prefix: the ratio of a token or a sequence, all of it.

    The geometric mean of ratios is no importance ratio, and a veto cuts the tail of every level.
    """
    return (
        isinstance(ratio.regulariser, Unregularised)
        and ratio.level is not Level.GEOMETRIC
        and ratio.veto_below is None
    )


def is_group_centred(advantage: AdvantageChoice) -> bool:
    """Whether the advantages of every group sum to zero."""
    if isinstance(advantage, SignBalance):
        whole = advantage.all_correct is AllCorrect.ZERO and advantage.rho_max is None
        return advantage.scope is Scope.GROUP and whole
    return isinstance(advantage, Grpo | DrGrpo | Rloo | ReinforcePlusPlusBaseline)


def _ratio(params: "EstimatorParams") -> Iterator[str]:
    ratio = weight_of(params.loss)
    if ratio is None:
        return
    if isinstance(ratio.regulariser, Uncorrected) and ratio.level is not Level.TOKEN:
        yield ("an uncorrected weight is 1 at every level: set the ratio's level to token, or a regulariser")
    if ratio.level is not Level.TOKEN and not is_exact(ratio) and not is_group_centred(params.advantage):
        yield (
            f"a {ratio.level} ratio that is not exact drifts towards the sampler unless every group is "
            f"centred, and {params.advantage.kind} does not centre groups: set advantage.kind to rloo or "
            "dr_grpo"
        )


def _centering(params: "EstimatorParams") -> Iterator[str]:
    if params.centering is None:
        return
    ratio = weight_of(params.loss)
    if isinstance(params.loss, Gspo) or (ratio is not None and ratio.level is not Level.TOKEN):
        level = Level.GEOMETRIC if isinstance(params.loss, Gspo) or ratio is None else ratio.level
        yield (
            f"score centering at {level} level changes nothing: one weight a sequence is centred by the "
            "group mean already; set centering to null, or take the ratio at token level"
        )
    elif isinstance(params.loss, PpoClip):
        yield (
            "score centering is not defined under ppo_clip, whose weight depends on the advantage's sign: "
            "set loss.kind to policy_gradient or cispo, or centering to null"
        )
    elif ratio is not None and ratio.veto_below is not None:
        yield (
            "score centering needs a weight that depends on the prefix and the token only, and a sequence "
            "veto looks ahead: set loss.ratio.veto_below or centering to null"
        )
    if not isinstance(params.advantage, DrGrpo | Rloo):
        yield (
            "score centering estimates a covariance with the reward, so the advantage must be the reward "
            f"minus its group's mean and nothing else, and {params.advantage.kind} is not: set "
            "advantage.kind to rloo or dr_grpo"
        )
    if isinstance(params.aggregation, SequenceMean):
        yield (
            "score centering at a prefix needs a weight that is known there, and sequence_mean divides by a "
            "length that is not: set aggregation.kind to token_mean or fixed_length"
        )


def _prefix_bias(params: "EstimatorParams") -> Iterator[str]:
    if params.centering is not None or params.acknowledge_prefix_bias:
        return
    ratio = weight_of(params.loss)
    surrogate = isinstance(params.loss, PpoClip | Gspo)
    if ratio is not None and ratio.level is Level.TOKEN and not is_exact(ratio):
        what = ratio.regulariser.kind if ratio.veto_below is None else "a sequence veto"
        way_out = "set centering.kind to full_vocabulary or head"
        if surrogate:
            way_out = "set loss.kind to policy_gradient and centering.kind to full_vocabulary or head"
        elif ratio.veto_below is not None:
            way_out = "set loss.ratio.veto_below to null"
        yield (
            f"what is done to the token ratio ({what}) pulls the policy towards its sampler at every prefix: "
            f"{way_out}, or acknowledge_prefix_bias to true"
        )
    if surrogate and ratio is None and params.sampler_lag:
        yield (
            f"{params.loss.kind} takes no ratio to a sampler that is {params.sampler_lag} steps old: set "
            "loss.correction, or loss.kind to policy_gradient, or acknowledge_prefix_bias to true"
        )


def _signbalance(params: "EstimatorParams") -> Iterator[str]:
    advantage = params.advantage
    if not isinstance(advantage, SignBalance):
        return
    if params.overlong is not None:
        yield (
            "signbalance is defined for exactly two rewards, and overlong adds others: set overlong to "
            "null, or another advantage.kind"
        )
    if advantage.scope is Scope.BATCH and advantage.all_correct is AllCorrect.PAPER:
        yield (
            "all_correct=paper is a rule for groups, and scope=batch counts no groups: set "
            "advantage.scope to group or advantage.all_correct to zero"
        )
    if not isinstance(params.aggregation, SequenceMean):
        yield (
            f"signbalance balances rollouts, and {params.aggregation.kind} weighs them by their lengths: set "
            "aggregation.kind to sequence_mean"
        )


def _selection(params: "EstimatorParams") -> Iterator[str]:
    advantage = params.advantage
    of_batch = isinstance(advantage, SignBalance) and advantage.scope is Scope.BATCH
    if params.dynamic_sampling is not None and (of_batch or isinstance(advantage, Gae | ReinforcePlusPlus)):
        yield (
            f"dynamic sampling drops the groups that {advantage.kind} would learn from, so its baseline "
            "would be of selected samples: set dynamic_sampling to null, or a group-relative advantage.kind"
        )


def _gspo(params: "EstimatorParams") -> Iterator[str]:
    if not isinstance(params.loss, Gspo):
        return
    if not isinstance(params.aggregation, SequenceMean):
        yield (
            f"gspo has one ratio a sequence, and {params.aggregation.kind} weighs sequences by length: "
            "set aggregation.kind to sequence_mean"
        )
    if isinstance(params.advantage, Gae):
        yield (
            "gspo has one ratio a sequence, so a critic's advantage of each token would be averaged away: "
            "set loss.kind to ppo_clip, or another advantage.kind"
        )
