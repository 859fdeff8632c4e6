"""The flow: one base, and from it the stage rl for each arm and seed.

The sampler of an arm is four steps old, and its token ratio is truncated, at 1 (as V-trace's) or at 2 (the
usual cap). `uncentered` takes the gradient as it is, `centered` subtracts its mean under the sampler. `fresh`
has a sampler of its own step and no ratio to correct: how far RL moves the distractors anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.distractors.domain import DISTRACTORS
from stages.archive.params import ArchiveParams
from stages.base.params import BaseParams, Mixture
from stages.domains.protocol import Split
from stages.engines.params import ModelShape, OptimizerParams, Sampling, Schedule
from stages.estimators.params import (
    DrGrpo,
    FullVocabulary,
    PolicyGradient,
    Ratio,
    TokenMean,
    Truncate,
    UniformReplay,
    Unregularised,
)
from stages.prompts.params import PromptsParams
from stages.rl.params import RlParams
from tasks.stage import stage
from tasks.store.manifest import Outputs, Ref

PROMPTS = PromptsParams(
    domain="benchmarks.distractors.domain:Distractors", vocabulary=300, tokenizer_rows=300
)
SAMPLING = Sampling(max_new_tokens=DISTRACTORS + 8)  # the letter, the digits, EOS, and some more
BASE = BaseParams(
    shape=ModelShape(hidden=64, layers=2, heads=4, intermediate=128, max_positions=64),
    # new digits in every row; half of the letters are right
    mixture=Mixture(random_slot_share=1.0, wrong_share=0.5, strategy_skew=1.0, second_reading_share=0.0),
    splits=(Split.TRAIN,),
    steps=150,
    rows_per_step=64,
    optimizer=OptimizerParams(learning_rate=1e-2, warmup_steps=20),
)
ARCHIVE = ArchiveParams(prompts=None, samples_per_round=16, max_rounds=1, patience=1, sampling=SAMPLING)
RL = RlParams(
    steps=25,
    prompts_per_step=8,
    group_size=64,
    advantage=DrGrpo(),
    aggregation=TokenMean(),
    replay=UniformReplay(coefficient=0.0),
    sampling=SAMPLING,
    # large steps, so that weights of four steps ago are another policy
    optimizer=OptimizerParams(learning_rate=1e-3, warmup_steps=10, schedule=Schedule.CONSTANT),
    loss=PolicyGradient(ratio=Ratio(regulariser=Unregularised())),
)


def stale(high: float, *, centered: bool) -> dict[str, Any]:
    """What an arm sets: a sampler four steps old, and a token ratio that is cut at `high`."""
    changes: dict[str, Any] = {
        "sampler_lag": 4,
        "loss": PolicyGradient(ratio=Ratio(regulariser=Truncate(high=high))),
    }
    return changes | ({"centering": FullVocabulary()} if centered else {"acknowledge_prefix_bias": True})


ARMS: Mapping[str, dict[str, Any]] = {
    "fresh": {},
    "uncentered-1": stale(1.0, centered=False),
    "centered-1": stale(1.0, centered=True),
    "uncentered-2": stale(2.0, centered=False),
    "centered-2": stale(2.0, centered=True),
}


@dataclass(frozen=True)
class Profile:
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    rl: RlParams
    base: BaseParams


# seeds 0 to 2 were looked at while this setting was found (LOG.md)
FULL = Profile(arms=tuple(ARMS), seeds=(3, 4, 5), rl=RL, base=BASE)
CI = Profile(
    arms=("uncentered-1", "centered-1"),
    seeds=(0,),
    rl=RL.model_copy(update={"steps": 6, "group_size": 16}),
    base=BASE.model_copy(update={"steps": 40}),
)


@dataclass(frozen=True)
class Made:
    """What the flow leaves to be measured; `arms` are by name and seed."""

    prompts: Ref
    archive: Ref
    start: Ref
    arms: Mapping[tuple[str, int], Ref]


def stale_sampler(profile: Profile) -> Made:
    made = stage("prompts", PROMPTS)
    domain = {"prompts": made["prompts"], "domain": made["domain"]}
    base = stage("base", profile.base, **domain, tokenizer=made["tokenizer"])["checkpoint"]
    archive = stage("archive", ARCHIVE, base=base, **domain)["archive"]  # the stage rl wants one
    arms = {
        (arm, seed): rl(
            f"rl.{arm}.{seed}", profile.rl, ARMS[arm], seed, policy=base, archive=archive, **domain
        )
        for seed in profile.seeds
        for arm in profile.arms
    }
    return Made(made["prompts"], archive, base, arms)


def rl(node: str, params: RlParams, changes: dict[str, Any], seed: int, **inputs: Ref) -> Ref:
    given = {name: getattr(params, name) for name in params.model_fields_set}
    made: Outputs = stage(node, RlParams(**{**given, **changes, "seed": seed}), **inputs)
    return made["checkpoint"]
