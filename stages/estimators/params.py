"""The typed choices that make up an estimator; torch-free. `rules.py` says which do not go together.

A choice names an algorithm by its `kind`; a part without a kind is the default one with other numbers.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator


class _Choice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _kinds(default: str, *others: str) -> Discriminator:
    """Tells a union's choices apart by `kind`; it is the default's where a recipe only sets a number."""

    def kind(given: Any) -> str | None:
        if isinstance(given, BaseModel):
            return str(getattr(given, "kind", None))
        return given.get("kind", default) if isinstance(given, dict) else None

    known = ", ".join((default, *others))
    return Discriminator(kind, "unknown_kind", f"there is no such kind; it is one of {known}")


# Advantages: what a sample's reward is worth.


class Grpo(_Choice):
    """(reward - group mean) / group std (arXiv 2402.03300)."""

    kind: Literal["grpo"] = "grpo"
    acknowledge_guessing: bool = Field(
        False, description="train on bounded answers although a lucky guess gets the largest advantages"
    )


class DrGrpo(_Choice):
    """reward - group mean (arXiv 2503.20783): expected gradient (1 - 1/G) x the true one."""

    kind: Literal["dr_grpo"] = "dr_grpo"


class Rloo(_Choice):
    """reward - mean of the other samples (arXiv 2402.14740): unbiased."""

    kind: Literal["rloo"] = "rloo"


class ReinforcePlusPlus(_Choice):
    """(reward - batch mean) / batch std (arXiv 2501.03262)."""

    kind: Literal["reinforce_pp"] = "reinforce_pp"


class ReinforcePlusPlusBaseline(_Choice):
    """(reward - group mean) / batch std of that (arXiv 2501.03262)."""

    kind: Literal["reinforce_pp_baseline"] = "reinforce_pp_baseline"


class Scope(StrEnum):
    GROUP = "group"  # Algorithm 2 of arXiv 2609.04063
    BATCH = "batch"  # counts over the batch: a global baseline, another estimator


class AllCorrect(StrEnum):
    ZERO = "zero"  # a group without a wrong sample teaches nothing: every group sums to zero
    PAPER = "paper"  # Algorithm 2 as written: +1 for each of its samples


class SignBalance(_Choice):
    """+1 for a right sample, -(right / wrong) for a wrong one (arXiv 2609.04063, Algorithm 2)."""

    kind: Literal["signbalance"] = "signbalance"
    scope: Scope = Scope.GROUP
    all_correct: AllCorrect = AllCorrect.ZERO
    rho_max: float | None = Field(
        None, gt=0, description="largest right / wrong; what exceeds it is clamped, and counted"
    )


class Gae(_Choice):
    """PPO's critic (arXiv 1506.02438, 1707.06347): a linear value head on the policy's last hidden states.

    The head reads detached states, so the value loss never moves the policy; it is not exported.
    """

    kind: Literal["gae"] = "gae"
    discount: float = Field(1.0, gt=0, le=1)
    trace: float = Field(0.95, ge=0, le=1, description="lambda: 1 is Monte Carlo, 0 is one step")
    learning_rate: float = Field(1e-3, gt=0, description="of the value head")


AdvantageChoice = Grpo | DrGrpo | Rloo | ReinforcePlusPlus | ReinforcePlusPlusBaseline | SignBalance | Gae
Advantage = Annotated[
    Annotated[Grpo, Tag("grpo")]
    | Annotated[DrGrpo, Tag("dr_grpo")]
    | Annotated[Rloo, Tag("rloo")]
    | Annotated[ReinforcePlusPlus, Tag("reinforce_pp")]
    | Annotated[ReinforcePlusPlusBaseline, Tag("reinforce_pp_baseline")]
    | Annotated[SignBalance, Tag("signbalance")]
    | Annotated[Gae, Tag("gae")],
    _kinds("grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "signbalance", "gae"),
]


# Importance ratios: level, regulariser, veto.


class Level(StrEnum):
    """What one ratio is taken over."""

    TOKEN = "token"
    SEQUENCE = "sequence"  # the product over the sequence's trained tokens
    GEOMETRIC = "geometric"  # their geometric mean


class Unregularised(_Choice):
    """f(r) = r."""

    kind: Literal["none"] = "none"


class Uncorrected(_Choice):
    """f(r) = 1: off-policy samples are taken as if they were on-policy."""

    kind: Literal["uncorrected"] = "uncorrected"


class Truncate(_Choice):
    """f(r) = min(r, high): TIS."""

    kind: Literal["truncate"] = "truncate"
    high: float = Field(2.0, ge=1)


class Clip(_Choice):
    """f(r) = clip(r, low, high), detached: CISPO's weight."""

    kind: Literal["clip"] = "clip"
    low: float = Field(0.5, ge=0, le=1)
    high: float = Field(2.0, ge=1)


class Mask(_Choice):
    """f(r) = r inside [low, high], 0 outside: IcePop."""

    kind: Literal["mask"] = "mask"
    low: float = Field(0.5, ge=0, le=1)
    high: float = Field(5.0, ge=1)


RegulariserChoice = Unregularised | Uncorrected | Truncate | Clip | Mask
Regulariser = Annotated[
    Annotated[Unregularised, Tag("none")]
    | Annotated[Uncorrected, Tag("uncorrected")]
    | Annotated[Truncate, Tag("truncate")]
    | Annotated[Clip, Tag("clip")]
    | Annotated[Mask, Tag("mask")],
    _kinds("none", "uncorrected", "truncate", "clip", "mask"),
]


class Ratio(_Choice):
    """A detached importance weight f(ratio), and the sequences that are thrown out whole."""

    level: Level = Level.TOKEN
    regulariser: Regulariser = Unregularised()
    veto_below: float | None = Field(
        None, gt=0, lt=1, description="a sequence with any token ratio below this has weight 0"
    )


# Losses: how a log-prob moves.


class PolicyGradient(_Choice):
    """-f(target / behaviour) x advantage x log-prob, the weight detached and taken from this very forward."""

    kind: Literal["policy_gradient"] = "policy_gradient"
    ratio: Ratio = Ratio()


class PpoClip(_Choice):
    """PPO's pessimistic clip of target / proximal per token (arXiv 1707.06347); clip-higher is DAPO's."""

    kind: Literal["ppo_clip"] = "ppo_clip"
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    correction: Ratio | None = Field(None, description="a weight f(proximal / behaviour) on top")


class Cispo(_Choice):
    """CISPO (arXiv 2506.13585): the policy gradient at token level with a clipped, detached ratio."""

    kind: Literal["cispo"] = "cispo"
    clip_low: float = Field(1.0, gt=0, le=1, description="1 is no lower clip, as in the paper")
    clip_high: float = Field(4.0, gt=0)

    @property
    def ratio(self) -> Ratio:
        return Ratio(level=Level.TOKEN, regulariser=Clip(low=1 - self.clip_low, high=1 + self.clip_high))


class Gspo(_Choice):
    """GSPO (arXiv 2507.18071): PPO's clip at geometric level, averaged over sequences."""

    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(3e-4, gt=0, lt=1)
    clip_high: float = Field(4e-4, gt=0)
    correction: Ratio | None = Field(None, description="a weight f(proximal / behaviour) on top")


LossChoice = PolicyGradient | PpoClip | Cispo | Gspo
Loss = Annotated[
    Annotated[PolicyGradient, Tag("policy_gradient")]
    | Annotated[PpoClip, Tag("ppo_clip")]
    | Annotated[Cispo, Tag("cispo")]
    | Annotated[Gspo, Tag("gspo")],
    _kinds("ppo_clip", "policy_gradient", "cispo", "gspo"),
]


# Score centering (arXiv 2609.20807): the mean of the weighted score under the sampler is subtracted.


class FullVocabulary(_Choice):
    """The sampler's whole distribution, recomputed with its own weights a block of positions at a time."""

    kind: Literal["full_vocabulary"] = "full_vocabulary"


class Head(_Choice):
    """The sampler's k most likely tokens, as it recorded them; the rest is modelled as proportional."""

    kind: Literal["head"] = "head"
    k: int = Field(128, ge=1)


Centering = Annotated[
    Annotated[FullVocabulary, Tag("full_vocabulary")] | Annotated[Head, Tag("head")],
    _kinds("full_vocabulary", "head"),
]


# Aggregation of a batch's tokens; every denominator counts the whole batch.


class TokenMean(_Choice):
    """Mean over the trained tokens of the batch."""

    kind: Literal["token_mean"] = "token_mean"


class SequenceMean(_Choice):
    """Mean over the batch's sequences of the mean over each one's tokens."""

    kind: Literal["sequence_mean"] = "sequence_mean"


class FixedLength(_Choice):
    """Sum over tokens, divided by sequences x a constant length: no length is favoured (Dr. GRPO)."""

    kind: Literal["fixed_length"] = "fixed_length"
    length: int = Field(ge=1)


AggregationChoice = TokenMean | SequenceMean | FixedLength
Aggregation = Annotated[
    Annotated[TokenMean, Tag("token_mean")]
    | Annotated[SequenceMean, Tag("sequence_mean")]
    | Annotated[FixedLength, Tag("fixed_length")],
    _kinds("token_mean", "sequence_mean", "fixed_length"),
]


# KL to the policy that the stage began with.

WRONG_KL = {
    "k1": "k1 (log p - log ref) has expected gradient 0 as a loss: it teaches nothing",
    "k2": "k2 is named by its gradient here",
    "k3": "k3 has the gradient of the forward KL as a loss, not of the reverse one",
}


def _named_by_gradient(kind: Any) -> Any:
    if isinstance(kind, str) and kind in WRONG_KL:
        raise ValueError(f"{WRONG_KL[kind]}; set kind to reverse_kl, or to forward_kl if you mean that one")
    return kind


class KlPenalty(_Choice):
    """Named by the expected gradient on samples of the policy, not by its value."""

    kind: Annotated[Literal["reverse_kl", "forward_kl"], BeforeValidator(_named_by_gradient)] = "reverse_kl"
    coefficient: float = Field(gt=0)


# Which samples are taken, and what length costs.


class DynamicSampling(_Choice):
    """DAPO (arXiv 2503.14476): sample on until a step has its number of groups with reward variance."""

    max_rounds: int = Field(4, ge=2, description="rounds of prompts_per_step prompts; then what is there")


class Overlong(_Choice):
    """DAPO's soft punishment: from 0 at max_new_tokens - cache down to -1 at max_new_tokens and beyond."""

    cache: int = Field(ge=1, description="tokens before max_new_tokens over which the punishment grows")


# Distillation on the student's own samples.


class FullVocabularyKl(_Choice):
    """KL(student || teacher) over the whole vocabulary at each sampled prefix."""

    kind: Literal["full_vocabulary"] = "full_vocabulary"


class TopKKl(_Choice):
    """KL over the student's k most likely tokens and one bucket for the rest: at most the full one."""

    kind: Literal["top_k"] = "top_k"
    k: int = Field(64, ge=1)


class SampledKl(_Choice):
    """log teacher - log student at the sampled token as a detached advantage: the same expected gradient."""

    kind: Literal["sampled"] = "sampled"


class VarianceReducedKl(_Choice):
    """The sampled one minus its closed-form mean -KL (arXiv 2605.07865): the same expected gradient.

    Less variance where the teacher is near the student; not for every teacher.
    """

    kind: Literal["variance_reduced"] = "variance_reduced"


DistillationChoice = FullVocabularyKl | TopKKl | SampledKl | VarianceReducedKl
Distillation = Annotated[
    Annotated[FullVocabularyKl, Tag("full_vocabulary")]
    | Annotated[TopKKl, Tag("top_k")]
    | Annotated[SampledKl, Tag("sampled")]
    | Annotated[VarianceReducedKl, Tag("variance_reduced")],
    _kinds("full_vocabulary", "top_k", "sampled", "variance_reduced"),
]


# Replay of elites (methods.md 1(b)).


class _Replay(_Choice):
    coefficient: float = Field(0.1, ge=0, description="0 is no replay, bit for bit")
    elites_per_step: int = Field(16, ge=1)


class UniformReplay(_Replay):
    """Forward KL from the uniform distribution over a prompt's elites."""

    kind: Literal["uniform"] = "uniform"


class JensenShannonReplay(_Replay):
    """DPH-RL's term (arXiv 2509.07430): the Jensen-Shannon generator of policy / base at stored tokens."""

    kind: Literal["jensen_shannon"] = "jensen_shannon"


class FloorReplay(_Replay):
    """Only elites whose probability per token fell below a floor, weighted by floor / probability."""

    kind: Literal["below_floor"] = "below_floor"
    floor: float = Field(0.5, gt=0, lt=1, description="geometric mean of an elite's token probabilities")
    max_weight: float = Field(10.0, ge=1, description="cap of floor / probability; what it cuts is counted")


class NarrowReplay(_Replay):
    """Only for the step's prompts whose group shows fewer correct strategies than their archive has."""

    kind: Literal["where_narrow"] = "where_narrow"


ReplayChoice = UniformReplay | JensenShannonReplay | FloorReplay | NarrowReplay
Replay = Annotated[
    Annotated[UniformReplay, Tag("uniform")]
    | Annotated[JensenShannonReplay, Tag("jensen_shannon")]
    | Annotated[FloorReplay, Tag("below_floor")]
    | Annotated[NarrowReplay, Tag("where_narrow")],
    _kinds("uniform", "jensen_shannon", "below_floor", "where_narrow"),
]


class EstimatorParams(_Choice):
    """What decides an RL step's gradient, given its samples; checked by `rules.refuse_impossible`."""

    advantage: Advantage = Grpo()
    loss: Loss = PpoClip()
    centering: Centering | None = None
    aggregation: Aggregation = TokenMean()
    kl: KlPenalty | None = None
    overlong: Overlong | None = None
    dynamic_sampling: DynamicSampling | None = None
    updates_per_batch: int = Field(1, ge=1, description="optimizer steps on each batch of samples")
    sampler_lag: int = Field(0, ge=0, description="steps by which the sampler's weights are older")
    acknowledge_prefix_bias: bool = Field(
        False, description="take a regularised token ratio without score centering (methods.md 3(b))"
    )

    @model_validator(mode="after")
    def _parts_go_together(self) -> "EstimatorParams":
        from stages.estimators.rules import refuse_impossible

        refuse_impossible(self)
        return self
