"""A whole RL run's updates, its schedule and the age of its sampler."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/rl/test_updates.py"
STAGE = "stages/rl/stage.py"
POLICY = "stages/rl/policy.py"

MUTANTS = [
    Mutant(
        name="every update is the first one",
        file=STAGE,
        old="step, update == 0) if taken",
        new="step, True) if taken",
    ),
    Mutant(
        name="updates_per_batch ignored",
        file=STAGE,
        old="range(params.updates_per_batch)",
        new="range(1)",
    ),
    Mutant(
        name="sampler_lag ignored",
        file=STAGE,
        old="Sampler(policy.engine, params.sampler_lag)",
        new="Sampler(policy.engine, 0)",
    ),
    Mutant(
        name="the schedule counts steps, not updates",
        file=POLICY,
        old="updates = params.steps * params.updates_per_batch",
        new="updates = params.steps",
    ),
    Mutant(
        name="the critic's learning rate ignored",
        file=POLICY,
        old="ValueHeadParams(learning_rate=params.advantage.learning_rate)",
        new="ValueHeadParams()",
    ),
    Mutant(
        name="a critic without gae",
        file=POLICY,
        old="critic = None\n",
        new="critic = ValueHeadParams()\n",
    ),
    Mutant(
        name="no reference for a penalty",
        file=POLICY,
        old="if params.kl else None",
        new="if False else None",
    ),
]
