"""An RL step around its losses: updates, the sampler's age, rounds."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/rl/wiring"
STAGE = "stages/rl/stage.py"
SAMPLER = "stages/rl/sampler.py"
COLLECT = "stages/rl/collect.py"

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
        name="an update too many",
        file=STAGE,
        old="range(params.updates_per_batch)",
        new="range(params.updates_per_batch + 1)",
    ),
    Mutant(
        name="engine and trainer compared at the last update",
        file=STAGE,
        old="if of_policy is not None and update == 0:",
        new="if of_policy is not None:",
    ),
    Mutant(
        name="elites in the first update only",
        file=STAGE,
        old=("if drawn else None\n        norm"),
        new=("if drawn and update == 0 else None\n        norm"),
    ),
    Mutant(
        name="the policy does not score the batch",
        file=STAGE,
        old="taken = scored(taken, policy, params, step)",
        new="pass",
    ),
    Mutant(
        name="all sampled groups trained on, not those taken",
        file=STAGE,
        old=("worth(collected.taken, params)\n        taken, found = experience(collected.taken,"),
        new=("worth(collected.sampled, params)\n        taken, found = experience(collected.sampled,"),
    ),
    Mutant(
        name="the policy's version is the next step's",
        file=STAGE,
        old="PolicyTerm(taken, params, policy.engine, step, update",
        new="PolicyTerm(taken, params, policy.engine, step + 1, update",
    ),
    Mutant(
        name="the newest weights sample",
        file=SAMPLER,
        old="oldest = min(self.kept)",
        new="oldest = max(self.kept)",
    ),
    Mutant(
        name="the sampler's own version forgotten: told the step's",
        file=SAMPLER,
        old=("self.engine.load_weights(self.kept[oldest], oldest)\n        return oldest"),
        new=("self.engine.load_weights(self.kept[oldest], oldest)\n        return step"),
    ),
    Mutant(
        name="the sampler's own version forgotten: the engine told the step's",
        file=SAMPLER,
        old="self.engine.load_weights(self.kept[oldest], oldest)",
        new="self.engine.load_weights(self.kept[oldest], step)",
    ),
    Mutant(
        name="a lag too short by one",
        file=SAMPLER,
        old="[: -self.lag - 1]",
        new="[: -self.lag]",
    ),
    Mutant(
        name="kept weights follow the trainer",
        file=SAMPLER,
        old="tensor.detach().clone()",
        new="tensor.detach()",
    ),
    Mutant(
        name="kept weights are not restored",
        file=SAMPLER,
        old="self.kept = dict(kept)",
        new="self.kept = {}",
    ),
    Mutant(
        name="the head is not recorded",
        file=COLLECT,
        old="head=params.centering.k if isinstance(params.centering, Head) else 0",
        new="head=0",
    ),
    Mutant(
        name="the head's size ignored",
        file=COLLECT,
        old="head=params.centering.k if isinstance(params.centering, Head) else 0",
        new="head=4 if isinstance(params.centering, Head) else 0",
    ),
    Mutant(
        name="group_size ignored",
        file=COLLECT,
        old="        params.group_size,\n",
        new="        8,\n",
    ),
    Mutant(
        name="the recipe's sampling ignored",
        file=COLLECT,
        old="        params.sampling,\n",
        new="        type(params.sampling)(),\n",
    ),
    Mutant(
        name="max_rounds ignored",
        file=COLLECT,
        old="most = params.dynamic_sampling.max_rounds",
        new="most = 4",
    ),
    Mutant(
        name="rounds go on when there is enough",
        file=COLLECT,
        old=("        if len(varied) >= wanted:\n            break\n"),
        new="",
    ),
    Mutant(
        name="flat groups taken by dynamic sampling",
        file=COLLECT,
        old="Collected(sampled, varied[:wanted], turn + 1)",
        new="Collected(sampled, sampled[:wanted], turn + 1)",
    ),
    Mutant(
        name="every round samples alike",
        file=COLLECT,
        old="sample_round(ctx, policy, pool, first_round + turn)",
        new="sample_round(ctx, policy, pool, first_round)",
    ),
    Mutant(
        name="groups that vary dropped without dynamic sampling",
        file=COLLECT,
        old="return Collected(sampled, sampled, 1)",
        new="return Collected(sampled, sampled[:1], 1)",
    ),
    Mutant(
        name="rounds not counted",
        file=COLLECT,
        old="varied[:wanted], turn + 1)",
        new="varied[:wanted], 1)",
    ),
]
