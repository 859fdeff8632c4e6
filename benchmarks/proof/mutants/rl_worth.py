"""Which advantage a recipe gets, and what length costs."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/rl/test_worth.py"
FILE = "stages/rl/worth.py"

MUTANTS = [
    Mutant(
        name="grpo: dr_grpo called",
        file=FILE,
        old="return Worth(rewards, scorable, grpo(rewards, scorable))",
        new="return Worth(rewards, scorable, dr_grpo(rewards, scorable))",
    ),
    Mutant(
        name="dr_grpo: grpo called",
        file=FILE,
        old="return Worth(rewards, scorable, dr_grpo(rewards, scorable))",
        new="return Worth(rewards, scorable, grpo(rewards, scorable))",
    ),
    Mutant(
        name="dr_grpo: rloo called",
        file=FILE,
        old="return Worth(rewards, scorable, dr_grpo(rewards, scorable))",
        new="return Worth(rewards, scorable, rloo(rewards, scorable))",
    ),
    Mutant(
        name="rloo: dr_grpo called",
        file=FILE,
        old="return Worth(rewards, scorable, rloo(rewards, scorable))",
        new="return Worth(rewards, scorable, dr_grpo(rewards, scorable))",
    ),
    Mutant(
        name="reinforce_pp: with the group's baseline",
        file=FILE,
        old="return Worth(rewards, scorable, reinforce_plus_plus(rewards, scorable))",
        new="return Worth(rewards, scorable, reinforce_plus_plus_baseline(rewards, scorable))",
    ),
    Mutant(
        name="reinforce_pp_baseline: without the group's baseline",
        file=FILE,
        old="return Worth(rewards, scorable, reinforce_plus_plus_baseline(rewards, scorable))",
        new="return Worth(rewards, scorable, reinforce_plus_plus(rewards, scorable))",
    ),
    Mutant(
        name="signbalance: scope ignored",
        file=FILE,
        old="signbalance(rewards, scorable, choice.scope,",
        new="signbalance(rewards, scorable, Scope.GROUP,",
    ),
    Mutant(
        name="signbalance: all_correct ignored",
        file=FILE,
        old="choice.scope, choice.all_correct, choice.rho_max)",
        new="choice.scope, SignBalance().all_correct, choice.rho_max)",
    ),
    Mutant(
        name="signbalance: rho_max ignored",
        file=FILE,
        old="choice.all_correct, choice.rho_max)",
        new="choice.all_correct, None)",
    ),
    Mutant(
        name="signbalance: nothing is told to be clamped",
        file=FILE,
        old='"clamped": balanced.clamped / ratios',
        new='"clamped": 0.0',
    ),
    Mutant(
        name="signbalance: clamped ratios of a batch shared among its groups",
        file=FILE,
        old="ratios = len(groups) if choice.scope is Scope.GROUP else 1",
        new="ratios = len(groups)",
    ),
    Mutant(
        name="signbalance: clamped ratios counted, not their share",
        file=FILE,
        old="balanced.clamped / ratios",
        new="balanced.clamped",
    ),
    Mutant(
        name="signbalance: all wrong told as all correct",
        file=FILE,
        old="balanced.all_correct_groups / len(groups)",
        new="balanced.all_wrong_groups / len(groups) / 2",
    ),
    Mutant(
        name="signbalance: the ratio that is told is clamped",
        file=FILE,
        old='"largest_ratio": balanced.largest_ratio',
        new='"largest_ratio": min(balanced.largest_ratio, choice.rho_max or 1e9)',
    ),
    Mutant(
        name="gae: only groups that vary",
        file=FILE,
        old="Advantages(torch.zeros_like(rewards), scorable.any(1))",
        new="Advantages(torch.zeros_like(rewards), dr_grpo(rewards, scorable).informative_P)",
    ),
    Mutant(
        name="gae: rewards as advantages, the critic ignored",
        file=FILE,
        old="Advantages(torch.zeros_like(rewards), scorable.any(1))",
        new="Advantages(rewards, scorable.any(1))",
    ),
    Mutant(
        name="overlong: a bonus",
        file=FILE,
        old="rewards = rewards + overlong_penalty(",
        new="rewards = rewards - overlong_penalty(",
    ),
    Mutant(
        name="overlong: never taken",
        file=FILE,
        old="if params.overlong is not None:",
        new="if False:",
    ),
    Mutant(
        name="overlong: the cache is the whole completion",
        file=FILE,
        old="lengths_PG, params.sampling.max_new_tokens, params.overlong.cache",
        new="lengths_PG, params.sampling.max_new_tokens, params.sampling.max_new_tokens",
    ),
    Mutant(
        name="overlong: lengths with their prompts",
        file=FILE,
        old="len(sample.rollout.completion_ids) for sample in g",
        new="len(sample.prompt_ids + sample.rollout.completion_ids) for sample in g",
    ),
    Mutant(
        name="dynamic sampling: a group without a verdict on its right samples varies",
        file=FILE,
        old="dr_grpo(*rewards_PG(groups)).informative_P.tolist()",
        new="rewards_PG(groups)[0].any(1).tolist()",
    ),
]
