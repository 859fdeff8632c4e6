"""Wrong versions of group advantages and of what is asked of rewards."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/advantages/test_groups.py"

_RESULT = "stages/estimators/advantages/result.py"
_GROUPS = "stages/estimators/advantages/groups.py"

MUTANTS = [
    Mutant(
        name="the population's std replaced by the sample's",
        file=_GROUPS,
        old="(unit_PG.square().sum(1) / scorable_PG.sum(1).clamp(min=1))",
        new="(unit_PG.square().sum(1) / (scorable_PG.sum(1) - 1).clamp(min=1))",
    ),
    Mutant(
        name="the std's denominator counts unscorable samples",
        file=_GROUPS,
        old="(unit_PG.square().sum(1) / scorable_PG.sum(1).clamp(min=1))",
        new="(unit_PG.square().mean(1))",
    ),
    Mutant(
        name="the std dropped from GRPO",
        file=_GROUPS,
        old="    return Advantages(unit_PG / std_P[:, None], informative_P)",
        new="    return Advantages(centred_PG, informative_P)",
    ),
    Mutant(
        name="an epsilon added to the std",
        file=_GROUPS,
        old="    return Advantages(unit_PG / std_P[:, None], informative_P)",
        new="    return Advantages(unit_PG / (std_P[:, None] + 1e-6), informative_P)",
    ),
    Mutant(
        name="deviations squared at their own scale: a tiny one underflows",
        file=_GROUPS,
        old="centred_PG / centred_PG.abs().amax(1, keepdim=True).where(informative_P[:, None], 1.0)",
        new="centred_PG",
    ),
    Mutant(
        name="own reward included in the leave-one-out mean",
        file=_GROUPS,
        old="centred_PG * scale_P[:, None]",
        new="centred_PG",
    ),
    Mutant(
        name="leave-one-out scaled by the group's size with its unscorable samples",
        file=_GROUPS,
        old="    count_P = scorable_PG.sum(1).to(rewards_PG)",
        new="    count_P = (scorable_PG | True).sum(1).to(rewards_PG)",
    ),
    Mutant(
        name="leave-one-out scale in the default dtype",
        file=_GROUPS,
        old="    count_P = scorable_PG.sum(1).to(rewards_PG)",
        new="    count_P = scorable_PG.sum(1)",
    ),
    Mutant(
        name="the group mean dropped",
        file=_GROUPS,
        old="(rewards_PG - mean_P[:, None]).where",
        new="rewards_PG.where",
    ),
    Mutant(
        name="unscorable samples in the mean's denominator",
        file=_GROUPS,
        old=".sum(1) / count_P.clamp(min=1)",
        new=".mean(1)",
    ),
    Mutant(
        name="an unscorable sample gets minus the mean as its advantage",
        file=_GROUPS,
        old="    counts_PG = scorable_PG & informative_P[:, None]",
        new="    rewards_PG = rewards_PG.where(scorable_PG, zero)\n"
        "    counts_PG = (scorable_PG | True) & informative_P[:, None]",
    ),
    Mutant(
        name="every group informative",
        file=_GROUPS,
        old="    informative_P = highest_P > lowest_P",
        new="    informative_P = highest_P == highest_P",
    ),
    Mutant(
        name="groups dropped when any row stands at the baseline",
        file=_GROUPS,
        old="    return Advantages(centred_PG * scale_P[:, None], informative_P)",
        new="    return Advantages(centred_PG * scale_P[:, None], informative_P & (centred_PG != 0).all(1))",
    ),
    Mutant(
        name="groups of one let through",
        file=_RESULT,
        old="    if rewards_PG.shape[1] < 2:",
        new="    if rewards_PG.shape[1] < 1:",
    ),
    Mutant(
        name="rewards that are not finite let through",
        file=_RESULT,
        old="    if not rewards_PG[scorable_PG].isfinite().all():",
        new="    if rewards_PG.ndim == 0:",
    ),
    Mutant(
        name="rewards with a gradient let through",
        file=_RESULT,
        old="    if rewards_PG.requires_grad:",
        new="    if rewards_PG.ndim == 0:",
    ),
]
