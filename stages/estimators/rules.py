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
    yield from _advantage(params)
    yield from _aggregation(params)


def weight_of(loss: LossChoice) -> Ratio | None:
    """The importance weight that multiplies the score; None where a loss takes none against the sampler."""
    return loss.correction if isinstance(loss, PpoClip | Gspo) else loss.ratio


def is_group_centred(advantage: AdvantageChoice) -> bool:
    """Whether every group's advantages sum to zero (leave-one-out: up to the factor of its group mean)."""
    if isinstance(advantage, SignBalance):
        return advantage.scope is Scope.GROUP and advantage.all_correct is AllCorrect.ZERO
    return isinstance(advantage, Grpo | DrGrpo | Rloo | ReinforcePlusPlusBaseline)


def _ratio(params: "EstimatorParams") -> Iterator[str]:
    ratio = weight_of(params.loss)
    if ratio is None:
        return
    if isinstance(ratio.regulariser, Uncorrected) and ratio.level is not Level.TOKEN:
        yield ("an uncorrected weight is 1 at every level: set the ratio's level to token, or a regulariser")
    regularised = not isinstance(ratio.regulariser, Unregularised)
    if ratio.level is not Level.TOKEN and regularised and not is_group_centred(params.advantage):
        yield (
            f"a regularised ratio at {ratio.level} level drifts towards the sampler unless every group is "
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
    if not is_group_centred(params.advantage):
        yield (
            f"score centering needs a group-centred advantage, or its variance grows with the rewards' "
            f"origin, and {params.advantage.kind} is not: set advantage.kind to rloo or dr_grpo"
        )


def _prefix_bias(params: "EstimatorParams") -> Iterator[str]:
    if params.centering is not None or params.acknowledge_prefix_bias:
        return
    ratio = weight_of(params.loss)
    surrogate = isinstance(params.loss, PpoClip | Gspo)
    if ratio is not None and ratio.level is Level.TOKEN and not isinstance(ratio.regulariser, Unregularised):
        way_out = (
            "set loss.kind to policy_gradient and centering.kind to full_vocabulary or head"
            if surrogate
            else "set centering.kind to full_vocabulary or head"
        )
        yield (
            f"the token ratio's regulariser ({ratio.regulariser.kind}) pulls the policy towards its sampler "
            f"at every prefix: {way_out}, or acknowledge_prefix_bias to true"
        )
    if surrogate and ratio is None and params.sampler_lag:
        yield (
            f"{params.loss.kind} takes no ratio to a sampler that is {params.sampler_lag} steps old: set "
            "loss.correction, or loss.kind to policy_gradient, or acknowledge_prefix_bias to true"
        )


def _advantage(params: "EstimatorParams") -> Iterator[str]:
    advantage = params.advantage
    if isinstance(advantage, SignBalance):
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
    if params.dynamic_sampling is not None and isinstance(advantage, Gae | ReinforcePlusPlus):
        yield (
            f"dynamic sampling drops the groups that {advantage.kind} would learn from, so its baseline "
            "would be of selected samples: set dynamic_sampling to null, or a group-relative advantage.kind"
        )


def _aggregation(params: "EstimatorParams") -> Iterator[str]:
    if isinstance(params.aggregation, SequenceMean):
        return
    if isinstance(params.advantage, SignBalance):
        yield (
            f"signbalance balances rollouts, and {params.aggregation.kind} weighs them by their lengths: set "
            "aggregation.kind to sequence_mean"
        )
    if isinstance(params.loss, Gspo):
        yield (
            f"gspo has one ratio a sequence, and {params.aggregation.kind} weighs sequences by length: "
            "set aggregation.kind to sequence_mean"
        )
