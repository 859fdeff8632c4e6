"""Wrong versions of GAE."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/stages/estimators/advantages/test_gae.py"

_FILE = "stages/estimators/advantages/gae.py"

MUTANTS = [
    Mutant(
        name="the value of the token itself as the next one",
        file=_FILE,
        old="discount * next_value_B - values_BT[:, t]",
        new="discount * values_BT[:, t] - values_BT[:, t]",
    ),
    Mutant(
        name="the discount forgotten in the trace",
        file=_FILE,
        old="discount * trace * next_advantage_B",
        new="trace * next_advantage_B",
    ),
    Mutant(
        name="the discount forgotten in the difference",
        file=_FILE,
        old="discount * next_value_B",
        new="next_value_B",
    ),
    Mutant(
        name="a tool's value taken as the next one",
        file=_FILE,
        old="        next_value_B = values_BT[:, t].where(trained_B, next_value_B)",
        new="        next_value_B = values_BT[:, t]",
    ),
    Mutant(
        name="the trace broken by a tool's token",
        file=_FILE,
        old=".where(trained_B, next_advantage_B)",
        new=".where(trained_B, 0.0)",
    ),
    Mutant(
        name="tool tokens get the advantage carried over them",
        file=_FILE,
        old="        advantages_BT[:, t] = next_advantage_B.where(trained_B, 0.0)",
        new="        advantages_BT[:, t] = next_advantage_B",
    ),
    Mutant(
        name="returns without the values",
        file=_FILE,
        old="    return advantages_BT, advantages_BT + values_BT.where(mask_BT, 0.0)",
        new="    return advantages_BT, advantages_BT.clone()",
    ),
    Mutant(
        name="the critic in the advantages' graph",
        file=_FILE,
        old="    rewards_BT, values_BT = rewards_BT.detach(), values_BT.detach()\n",
        new="",
    ),
    Mutant(
        name="a reward on a masked token lost in silence",
        file=_FILE,
        old="    if (outside_N.isfinite() & (outside_N != 0)).any():",
        new="    if outside_N.ndim == 0:",
    ),
    Mutant(
        name="the terminal reward on the last column, masked or not",
        file=_FILE,
        old="mask_BT & (steps_T == last_B1)",
        new="steps_T == len(steps_T)",
    ),
    Mutant(
        name="the terminal reward on the first trained token",
        file=_FILE,
        old="mask_BT & (steps_T == last_B1)",
        new="mask_BT & (mask_BT.cumsum(1) == 1)",
    ),
    Mutant(
        name="the terminal reward on every trained token",
        file=_FILE,
        old="mask_BT & (steps_T == last_B1)",
        new="mask_BT",
    ),
    Mutant(
        name="a row's reward without a token lost in silence",
        file=_FILE,
        old="    if (homeless_N.isfinite() & (homeless_N != 0)).any():",
        new="    if homeless_N.ndim == 0:",
    ),
    Mutant(
        name="returns not detached in the value loss",
        file=_FILE,
        old="returns_BT.detach()",
        new="returns_BT",
    ),
    Mutant(
        name="the value loss masked after the square, so that its gradient is NaN",
        file=_FILE,
        old="    error_BT = (values_BT - returns_BT.detach()).where(mask_BT, 0.0)\n"
        "    return 0.5 * error_BT.square()",
        new="    error_BT = values_BT - returns_BT.detach()\n"
        "    return (0.5 * error_BT.square()).where(mask_BT, 0.0)",
    ),
    Mutant(
        name="the value loss without its half",
        file=_FILE,
        old="    return 0.5 * error_BT.square()",
        new="    return error_BT.square()",
    ),
]
