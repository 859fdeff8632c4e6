"""What a run had to do without, counted by step and told at its end."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from stages.estimators.params import SignBalance
from stages.rl.params import RlParams

STEEP_RATIO = 4.0  # right / wrong from which one wrong sample outweighs many right ones (methods.md 4(c))
THIN_HEAD = 0.99  # mass below which a recorded head leaves too much to its model of the rest


class Shortfall(StrEnum):
    IDLE = "idle"  # neither reward variance nor elites: nothing was trained
    FEW_GROUPS = "few_groups"  # fewer groups with variance than wanted, after all rounds
    STEEP = "steep"  # SIGNBALANCE's right / wrong above STEEP_RATIO, not clamped
    THIN_HEAD = "thin_head"  # mean mass of the sampler's recorded head below THIN_HEAD


def of_step(params: RlParams, groups: int, idle: bool, metrics: Mapping[str, float | None]) -> set[Shortfall]:
    """The shortfalls of one step that trained on this many groups."""
    found = set()
    if idle:
        found.add(Shortfall.IDLE)
    if params.dynamic_sampling is not None and groups < params.prompts_per_step:
        found.add(Shortfall.FEW_GROUPS)
    unclamped = isinstance(params.advantage, SignBalance) and params.advantage.rho_max is None
    if unclamped and (metrics.get("largest_ratio") or 0.0) > STEEP_RATIO:
        found.add(Shortfall.STEEP)
    head_mass = metrics.get("head_mass")
    if head_mass is not None and head_mass < THIN_HEAD:
        found.add(Shortfall.THIN_HEAD)
    return found


def told(counts: Counter[Shortfall], params: RlParams) -> list[str]:
    """One sentence for each kind that occurred."""
    rounds = params.dynamic_sampling.max_rounds if params.dynamic_sampling else 1
    sentences = {
        Shortfall.IDLE: "had neither reward variance nor elites and trained nothing",
        Shortfall.FEW_GROUPS: (
            f"had fewer than {params.prompts_per_step} groups with reward variance after {rounds} rounds, "
            "and trained on those"
        ),
        Shortfall.STEEP: (
            f"had a group with more than {STEEP_RATIO:g} right samples to a wrong one, which then weighs as "
            "much as all of them: advantage.rho_max clamps that"
        ),
        Shortfall.THIN_HEAD: (
            f"centred by a recorded head with less than {THIN_HEAD:.0%} of the sampler's mass: raise "
            "centering.k"
        ),
    }
    return [f"{counts[kind]} steps {sentences[kind]}" for kind in Shortfall if counts[kind]]
