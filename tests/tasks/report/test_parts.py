"""The parts of a page that compute something."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasks.report import figures, numbers, reading
from tasks.report.material import Material, series


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.integers(1, 20))
def test_running_mean_is_that_of_the_last_values(values, window):
    expected = [np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(figures.running_mean(values, window), expected, atol=1e-8)


def test_columns_are_every_pass_then_the_largest_k_of_the_others():
    metrics = {"both@8", "pass@8", "distinct@1", "pass@1", "distinct@8", "both@1"}
    assert numbers.columns_of(metrics) == ["pass@1", "pass@8", "distinct@8", "both@8"]


def estimates(*means):
    return [numbers.Estimate(mean) for mean in means]


def test_a_change_is_from_the_first_checkpoint_to_the_last():
    row = numbers.Capability("a", True, 3, {"pass@1": estimates(0.5, 0.9, 0.25)}, False)
    assert row.change("pass@1") == -0.25
    assert numbers.Capability("a", True, 3, {"pass@1": estimates(0.5)}, False).change("pass@1") is None
    assert numbers.Capability("a", True, 3, {"pass@1": estimates(None, 0.5)}, False).change("pass@1") is None


def test_capabilities_are_sorted_by_their_change_falls_first(finished):
    metrics, checkpoints, rows = numbers.capabilities(Material(finished.home, finished.run_id))
    assert (metrics, checkpoints) == (["pass@1", "distinct@128"], ["base", "sft", "opd", "rl"])
    changes = [row.change("pass@1") for row in rows]
    assert len(rows) == 3 and changes == sorted(changes)


def test_strategies_are_counted_on_both_sides(finished):
    material = Material(finished.home, finished.run_id)
    before, after, shown = reading.strategies(material)
    assert (before, after) == ("base", "rl")
    assert [bool(prompt.ambiguity) for prompt in shown][:2] == [True, True]
    rows = reading.samples(material, finished.made["evaluate.rl"])
    for prompt in shown:
        for strategy in prompt.strategies:
            right = [row for row in rows[prompt.prompt_id] if row["signature"] == strategy.signature]
            assert strategy.after == len(right)
        assert prompt.n_before == prompt.n_after - 1  # one sample of the base has no verdict
        assert prompt.distinct_after == sum(strategy.after > 0 for strategy in prompt.strategies)


def test_rollouts_to_read_have_the_verdict_that_they_are_shown_under(finished):
    name, found = reading.rollouts(Material(finished.home, finished.run_id))
    assert name == "rl" and set(found) == {"right", "wrong", "unscorable"}
    assert [str(rollout.text) for rollout in found["wrong"]] == [
        "<b>SELECT</b> &lt;nothing&gt; <b>FROM</b> Album"
    ] * 3
    assert found["unscorable"] == [] and len(found["right"]) == 3


def test_series_leave_out_what_is_no_number_and_a_torn_line(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(
        json.dumps({"step": 1, "loss": 2, "none": None, "flag": True, "word": "x"}) + '\n{"step": 2,'
    )
    assert series(file) == {"loss": [(1, 2.0)]}
    assert series(tmp_path / "missing.jsonl") == {}
