import json
from pathlib import Path

import pytest

from tasks.lineage import entities


@pytest.mark.parametrize(
    ("name", "accepted"), [("pass@1", "pass_at_1"), ("a/b c", "a/b c"), ("x=1,y", "x_1_y"), ("é", "é")]
)
def test_metric_names_are_ones_that_mlflow_takes(name, accepted):
    assert entities.metric_name(name) == accepted


def test_short_digest_fits_the_limit_of_mlflow():
    assert entities.short_digest("sha256:" + "ab" * 32) == "ab" * 18


def test_step_metrics_leave_out_what_is_no_finite_number(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    rows = [
        {"step": 1, "loss": 0.5, "note": "x", "absent": None},
        {"step": 2, "loss": float("nan"), "flag": True},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert entities.step_metrics(file) == [("loss", 0.5, 1)]
    assert entities.step_metrics(tmp_path / "none.jsonl") == []
