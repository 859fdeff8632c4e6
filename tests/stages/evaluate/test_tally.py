"""From judged samples to rows of evaluation/1 and to the summary, against counts made by hand."""

import math
from itertools import combinations
from statistics import fmean, stdev

import pyarrow as pa
import pytest

from data_contracts.registry import contract
from data_contracts.values import StopReason
from stages.domains.pool import Judgement
from stages.domains.prompt_table import PromptRow
from stages.domains.protocol import Prompt, Split, Unscorable, Verdict
from stages.engines.params import Sampling
from stages.engines.protocol import Rollout
from stages.errors import GuardError
from stages.evaluate.summary import spread, summarise
from stages.evaluate.tally import evaluation_rows, tally
from stages.sampling.judged import Judged

WRONG = Judgement(Verdict(reward=0.0), None)
LOST = Judgement(Verdict(unscorable=Unscorable.WALL_CLOCK), None)


def right(signature, reading="first"):
    return Judgement(Verdict(reward=1.0, reading=reading), signature)


def row(name="p", capability="count", split=Split.TEST_VALUES, ambiguity=""):
    return PromptRow(Prompt(name, "d", capability, "?", {}, split, "open"), [], ambiguity, 1)


def group(of, judgements, stop=StopReason.EOS):
    return [
        Judged(of, [1], i, Rollout(0, [5, 6, 7], [-1.0] * 3, stop, 0, 0, Sampling()), "text", judgement)
        for i, judgement in enumerate(judgements)
    ]


MIXED = [right("join"), right("join"), right("cte", "second"), WRONG, LOST, WRONG, right("exists"), LOST]
SCORED = [judgement for judgement in MIXED if judgement is not LOST]


def test_rows_equal_the_mean_over_all_subsets_of_scorable_samples():
    ambiguous = row(ambiguity="C")
    rows = evaluation_rows(tally(ambiguous, group(ambiguous, MIXED)), [1, 2, 4, 6, 8])
    assert [found["k"] for found in rows] == [1, 2, 4, 6]  # 8 samples, but only 6 have a verdict
    for found in rows:
        subsets = list(combinations(SCORED, found["k"]))
        correct = [[j for j in subset if j.verdict.reward] for subset in subsets]
        assert found["pass_at_k"] == pytest.approx(fmean(bool(c) for c in correct))
        assert found["distinct_at_k"] == pytest.approx(fmean(len({j.signature for j in c}) for c in correct))
        both = fmean({j.verdict.reading for j in c} == {"first", "second"} for c in correct)
        assert found["both_at_k"] == pytest.approx(both)
        assert (found["n"], found["correct"], found["unscorable"], found["strategies"]) == (8, 4, 2, 3)


def test_a_prompt_with_one_reading_has_no_both():
    plain = row()
    rows = evaluation_rows(tally(plain, group(plain, [right("join"), WRONG])), [1, 2])
    assert [found["both_at_k"] for found in rows] == [None, None]


def test_rows_meet_their_contract():
    plain, ambiguous = row("a"), row("b", ambiguity="T")
    rows = [
        found
        for of, judgements in [(plain, [WRONG] * 8), (ambiguous, MIXED), (row("c"), [LOST] * 7 + [WRONG])]
        for found in evaluation_rows(tally(of, group(of, judgements)), [1, 4])
    ]
    agreed = contract("evaluation/1")
    assert agreed.check(pa.Table.from_pylist(rows, schema=agreed.schema)) == []
    assert [(found["prompt_id"], found["k"]) for found in rows] == [
        ("a", 1), ("a", 4), ("b", 1), ("b", 4), ("c", 1),
    ]  # fmt: skip


def test_correct_samples_without_a_signature_count_as_one_strategy():
    plain = row()
    found = tally(plain, group(plain, [right(None), right("join"), right(None), WRONG]))
    assert (found.correct, evaluation_rows(found, [4])[0]["distinct_at_k"]) == (3, 2.0)
    assert summarise([found], evaluation_rows(found, [1]), [])["scopes"]["overall"]["unsigned"] == 2


@pytest.mark.parametrize("readings", [["a", None], ["a", "b", "c"]])
def test_an_ambiguous_prompt_needs_to_be_told_its_readings(readings):
    ambiguous = row(ambiguity="P")
    with pytest.raises(GuardError, match="which of two readings"):
        tally(ambiguous, group(ambiguous, [right("s", reading) for reading in readings]))


def test_summary_counts_and_spreads():
    of = {
        "a": (row("a"), [right("x"), right("y"), WRONG, WRONG]),
        "b": (row("b", "list"), [right("x"), right("x"), right("x"), WRONG]),
        "c": (row("c", "new", Split.TEST_COMPOSITIONS, "C"), [right("x"), right("y", "second"), LOST, LOST]),
    }
    tallies = [
        tally(r, group(r, js, StopReason.LENGTH if name == "a" else StopReason.EOS))
        for name, (r, js) in of.items()
    ]
    rows = [found for t in tallies for found in evaluation_rows(t, [1, 4])]
    summary = summarise(tallies, rows, ["count", "list"])
    overall = summary["scopes"]["overall"]
    assert overall["unscorable"] == {"wall_clock": 2}
    assert overall["stop_reasons"] == {"eos": 8, "length": 4}
    assert (overall["prompts"], overall["ambiguous"], overall["samples"]) == (3, 1, 12)
    assert (overall["truncated_share"], overall["mean_length"]) == (pytest.approx(1 / 3), 3.0)
    passed = overall["metrics"]["pass@1"]
    assert passed["mean"] == pytest.approx(fmean([0.5, 0.75, 1.0]))
    assert passed["standard_error"] == pytest.approx(stdev([0.5, 0.75, 1.0]) / math.sqrt(3))
    assert overall["metrics"]["distinct@4"] == spread([2.0, 1.0])  # prompt c has two scorable samples only
    assert overall["metrics"]["both@1"] == {"mean": 0.0, "standard_error": None, "std": None, "prompts": 1}
    assert "both@1" not in summary["scopes"]["test-values"]["metrics"]
    assert summary["scopes"]["test-compositions"]["metrics"]["pass@1"]["mean"] == 1.0
    assert {name: found["trained"] for name, found in summary["matrix"].items()} == {
        "count": True, "list": True, "new": False,
    }  # fmt: skip
    assert summary["matrix"]["list"]["metrics"]["pass@1"]["mean"] == 0.75
