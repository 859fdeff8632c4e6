"""The replay term of an RL step: what its form and numbers are wired to."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/rl/test_replay_term.py"
FILE = "stages/rl/replay_term.py"

MUTANTS = [
    Mutant(
        name="temperature forgotten in Jensen-Shannon",
        file=FILE,
        old="temperature = micro.take_rows(self.temperature_B)",
        new="temperature = 1.0",
    ),
    Mutant(
        name="every form at the elites' temperature",
        file=FILE,
        old="if isinstance(self.choice, JensenShannonReplay):  # both",
        new="if True:  # both",
    ),
    Mutant(
        name="temperatures of other rows",
        file=FILE,
        old="temperature = micro.take_rows(self.temperature_B)",
        new="temperature = self.temperature_B[: len(micro.rows_B)]",
    ),
    Mutant(
        name="weights of other rows",
        file=FILE,
        old="micro.take_rows(self.weights_B)",
        new="self.weights_B[: len(micro.rows_B)]",
    ),
    Mutant(
        name="weights of the micro-batch",
        file=FILE,
        old="micro.take_rows(self.weights_B), micro.mask_BT",
        new="torch.full((len(micro.rows_B),), 1 / len(micro.rows_B)), micro.mask_BT",
    ),
    Mutant(
        name="base log-probs of other rows",
        file=FILE,
        old="base_BT = micro.take(self.base_logprobs_BT)",
        new="base_BT = self.base_logprobs_BT[: len(micro.rows_B), : mask_BT.shape[1]]",
    ),
    Mutant(
        name="coefficient forgotten",
        file=FILE,
        old="return self.choice.coefficient * (weights_B * loss_B).sum()",
        new="return (weights_B * loss_B).sum()",
    ),
    Mutant(
        name="jensen_shannon: likelihood replayed",
        file=FILE,
        old="loss_B = sequence_mean_B(jensen_shannon_BT(logprobs_BT, base_BT, mask_BT), mask_BT)",
        new="loss_B = nll_B",
    ),
    Mutant(
        name="below_floor: every elite replayed",
        file=FILE,
        old="loss_B = fallen_B * nll_B",
        new="loss_B = nll_B",
    ),
    Mutant(
        name="below_floor: floor ignored",
        file=FILE,
        old="mask_BT, floor, most)",
        new="mask_BT, 0.5, most)",
    ),
    Mutant(
        name="below_floor: max_weight ignored",
        file=FILE,
        old="mask_BT, floor, most)",
        new="mask_BT, floor, 10.0)",
    ),
    Mutant(
        name="below_floor: caps of the last micro-batch",
        file=FILE,
        old="self.capped += capped",
        new="self.capped = capped",
    ),
    Mutant(
        name="below_floor: capped elites counted, not their share",
        file=FILE,
        old="self.capped / self.elites",
        new="self.capped",
    ),
    Mutant(
        name="nll of the last micro-batch",
        file=FILE,
        old="self.nll += float(",
        new="self.nll = float(",
    ),
    Mutant(
        name="where_narrow: every prompt",
        file=FILE,
        old="among = narrow_prompts(found, elites.signatures)",
        new="among = None",
    ),
    Mutant(
        name="where_narrow: a group's strategies by its last sample's prompt only",
        file=FILE,
        old=".update(strategies(group))",
        new=".update(strategies(group[:1]))",
    ),
    Mutant(
        name="where_narrow taken for every form",
        file=FILE,
        old="if isinstance(choice, NarrowReplay):",
        new="if True:",
    ),
    Mutant(
        name="elites_per_step ignored",
        file=FILE,
        old="elites.draw(choice.elites_per_step, seed, among)",
        new="elites.draw(16, seed, among)",
    ),
    Mutant(
        name="the draw's seed ignored",
        file=FILE,
        old="elites.draw(choice.elites_per_step, seed, among)",
        new="elites.draw(choice.elites_per_step, 0, among)",
    ),
    Mutant(
        name="elites drawn although the coefficient is 0",
        file=FILE,
        old="if not choice.coefficient:",
        new="if False:",
    ),
]
