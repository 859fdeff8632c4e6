"""When a validation score has stopped rising."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/test_plateau.py"
FILE = "stages/estimators/plateau.py"

MUTANTS = [
    Mutant(
        name="noise counts as a gain",
        file=FILE,
        old="max(self.plateau.delta, standard_error)",
        new="self.plateau.delta",
    ),
    Mutant(
        name="the smaller of delta and noise counts",
        file=FILE,
        old="max(self.plateau.delta, standard_error)",
        new="min(self.plateau.delta, standard_error)",
    ),
    Mutant(
        name="delta is forgotten",
        file=FILE,
        old="max(self.plateau.delta, standard_error)",
        new="standard_error",
    ),
    Mutant(
        name="small gains do not add up",
        file=FILE,
        old='update={"step": step, "without_gain": state.without_gain + 1}',
        new='update={"step": step, "best": max(state.best, score), "without_gain": state.without_gain + 1}',
    ),
    Mutant(
        name="compared to the last score, not to the best",
        file=FILE,
        old='update={"step": step, "without_gain": state.without_gain + 1}',
        new='update={"step": step, "best": score, "without_gain": state.without_gain + 1}',
    ),
    Mutant(
        name="a gain does not end the row of evaluations without one",
        file=FILE,
        old="best_step=step, without_gain=0)",
        new="best_step=step, without_gain=state.without_gain)",
    ),
    Mutant(
        name="one evaluation too patient",
        file=FILE,
        old="self.state.without_gain >= self.plateau.patience",
        new="self.state.without_gain > self.plateau.patience",
    ),
    Mutant(
        name="a plateau before the least number of steps",
        file=FILE,
        old="step >= self.plateau.min_steps and ",
        new="",
    ),
    Mutant(
        name="patience starts at the least number of steps",
        file=FILE,
        old="if step >= self.plateau.min_steps and",
        new="if step > self.plateau.min_steps and",
    ),
    Mutant(
        name="the end of training is not told",
        file=FILE,
        old="return Decision.MAX_STEPS if step >= self.max_steps else Decision.CONTINUE",
        new="return Decision.CONTINUE",
    ),
    Mutant(
        name="the end of training hides a plateau",
        file=FILE,
        old="self.state.without_gain >= self.plateau.patience:",
        new="self.state.without_gain >= self.plateau.patience and step < self.max_steps:",
    ),
    Mutant(
        name="the last evaluation's step as the best one's",
        file=FILE,
        old='update={"step": step, "without_gain"',
        new='update={"step": step, "best_step": step, "without_gain"',
    ),
    Mutant(
        name="an evaluation is taken twice",
        file=FILE,
        old="step <= state.step:",
        new="step < state.step:",
    ),
    Mutant(
        name="a score that is no number is taken",
        file=FILE,
        old="if not math.isfinite(score) or not",
        new="if not",
    ),
    Mutant(
        name="a resume starts afresh",
        file=FILE,
        old="PlateauState.model_validate_json(text))",
        new="None)",
    ),
    Mutant(
        name="a resume forgets its patience",
        file=FILE,
        old="return self.state.model_dump_json()",
        new='return self.state.model_copy(update={"without_gain": 0}).model_dump_json()',
    ),
]
