"""`sample` and `evaluate`: a run's model, a folder's, and what `--last` means after that."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tasks.store.home import Home
from tasks.store.manifest import Ref
from tasks.store.objects import Store

FLOW = "toy_flows.speaking"


@pytest.fixture(scope="module")
def spoken(posttrain) -> dict[str, Any]:
    """A run that made a base, as `run --json` tells it."""
    return posttrain.json("run", FLOW, "--profile", "ci")


@pytest.fixture
def base(posttrain, spoken, tmp_path: Path) -> Path:
    """The base as somebody else's folder."""
    (made,) = [stage for stage in spoken["stages"] if stage["node"] == "base"]
    store = Store(Home(posttrain.home))
    ref: Ref = store.lookup("base", made["key"]).refs()["checkpoint"]
    return shutil.copytree(store.path(ref), tmp_path / "copy")


def test_a_question_of_the_domain_is_answered_with_verdicts(posttrain, spoken):
    found = posttrain.json("sample", "base", "say lo", "-n", "3")
    assert found["prompt_id"] == "test-values/lo"
    assert len(found["samples"]) == 3
    assert all(sample["reward"] in (0.0, 1.0) for sample in found["samples"])


def test_what_names_no_model_is_a_usage_error(posttrain, spoken):
    _, err = posttrain("sample", "prompts", "say lo", expect=2)
    assert "which is not a checkpoint" in err


def test_evaluate_measures_once_and_is_never_the_last_run(posttrain, spoken, base):
    options = ("--flow", FLOW, "--profile", "ci")
    found = posttrain.json("evaluate", "base", *options)
    assert found["scopes"]["test-values"]["prompts"] == 3
    assert set(found["scopes"]["test-values"]["metrics"]) >= {"pass@1", "pass@4"}

    out, err = posttrain("evaluate", str(base), *options)  # the same bytes, wherever they lie
    assert "evaluate: reused" in err and "test-values: 3 held-out questions" in out

    assert posttrain.json("status", "--last")["run"] == spoken["run"]
    audited = posttrain.json("lineage", "audit", "base", "--verify")
    assert [result["stage"] for result in audited["results"]] == ["prompts", "base"]
    assert audited["results"][0]["code"] == {"domain": "words/1", "signature": "words/1"}
    _, err = posttrain("resume", "--last")
    assert f"run {spoken['run']} is completed" in err
    assert found["run"] in {run["run"] for run in posttrain.json("status")}
    _, err = posttrain("resume", found["run"])
    assert "completed" in err
