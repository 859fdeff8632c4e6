"""Rules of evaluation/1: what must hold for unbiased estimates whatever the model."""

import numpy as np

from data_contracts.expectations import TableUnderCheck
from data_contracts.values import Split

TOLERANCE = 1e-9


def check(table: TableUnderCheck) -> None:
    table.unique("prompt_id", "k")
    table.in_set("split", [split.value for split in Split])
    _counts(table)
    _estimates(table)
    _monotone(table)


def _counts(table: TableUnderCheck) -> None:
    k, n = table.numbers("k"), table.numbers("n")
    correct, unscorable = table.numbers("correct"), table.numbers("unscorable")
    strategies = table.numbers("strategies")
    table.expect("k", "in [1, n]", (k < 1) | (k > n))
    table.expect("unscorable", "at least 0", unscorable < 0)
    table.expect("correct", "correct + unscorable in [0, n]", (correct < 0) | (correct + unscorable > n))
    table.expect("strategies", "in [0, correct]", (strategies < 0) | (strategies > correct))
    table.expect("strategies", "at least 1 where a sample is correct", (correct > 0) & (strategies == 0))


def _estimates(table: TableUnderCheck) -> None:
    passed, distinct = table.numbers("pass_at_k"), table.numbers("distinct_at_k")
    table.expect("pass_at_k", "in [0, 1]", (passed < 0) | (passed > 1 + TOLERANCE))
    table.expect("pass_at_k", "0 iff nothing is correct", (passed > 0) != (table.numbers("correct") > 0))
    most = np.minimum(table.numbers("strategies"), table.numbers("k"))
    outside = (distinct < -TOLERANCE) | (distinct > most + TOLERANCE)
    table.expect("distinct_at_k", "in [0, min(strategies, k)]", outside)
    # every correct sample has a strategy, so the expected number of strategies is at least P(one correct)
    table.expect("distinct_at_k", "at least pass_at_k", distinct < passed - TOLERANCE)
    ambiguous = ~table.equals("ambiguity", "")
    table.expect("both_at_k", "null iff the question is not ambiguous", table.null("both_at_k") == ambiguous)
    both = table.numbers("both_at_k")  # NaN where null, which compares as false
    table.expect("both_at_k", "in [0, 1]", (both < 0) | (both > 1 + TOLERANCE))


def _monotone(table: TableUnderCheck) -> None:
    prompt, k, passed = table.codes("prompt_id"), table.numbers("k"), table.numbers("pass_at_k")
    order = np.lexsort((k, prompt))
    falls = (np.diff(prompt[order]) == 0) & (np.diff(passed[order]) < -TOLERANCE)
    broken = np.zeros(len(k), bool)
    broken[order[1:][falls]] = True
    table.expect("pass_at_k", "not falling in k", broken)
