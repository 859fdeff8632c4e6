"""The projection, against a real MLflow database."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tasks import runs
from tasks.lineage.connection import connect
from tasks.lineage.project import in_order, needed_by, sync
from tasks.store.objects import Store

ROOT = Path(__file__).parents[3]


def everything(home, flow="text2sql"):
    """The runs of the flow's experiment by name, with the client's own view of each."""
    with connect(home) as tracking:
        experiment = tracking.client.get_experiment_by_name(flow)
        found = tracking.client.search_runs([experiment.experiment_id])
        return {run.info.run_name: tracking.client.get_run(run.info.run_id) for run in found}


def models_of(home, flow="text2sql"):
    with connect(home) as tracking:
        experiment = tracking.client.get_experiment_by_name(flow)
        return {
            found.name: found for found in tracking.client.search_logged_models([experiment.experiment_id])
        }


def content(home):
    """All that a projection says, without the identifiers that MLflow draws."""
    said = Counter()
    with connect(home) as tracking:
        for run in everything(home).values():
            for name in run.data.metrics:
                history = tracking.client.get_metric_history(run.info.run_id, name)
                said.update((run.info.run_name, name, point.step, point.value) for point in history)
            inputs, outputs = run.inputs, run.outputs
            said[run.info.run_name, "datasets"] += len(inputs.dataset_inputs) if inputs else 0
            said[run.info.run_name, "models"] += len(inputs.model_inputs) if inputs else 0
            said[run.info.run_name, "made"] += len(outputs.model_outputs) if outputs else 0
            said.update((run.info.run_name, "param", *pair) for pair in run.data.params.items())
            said[run.info.run_name, run.info.status] += 1
    for model in models_of(home).values():
        said.update((model.name, point.key, point.value) for point in model.metrics or [])
    return said


def test_syncing_again_makes_nothing_and_completing_repeats_nothing(pipeline):
    home = pipeline.home
    assert sync(home).model_dump() == {"created": 11, "present": 0}
    whole = content(home)
    assert sync(home).model_dump() == {"created": 0, "present": 11}
    assert content(home) == whole
    with connect(home) as tracking:  # as if every projection had been torn in its last call
        for run in everything(home).values():
            tracking.client.update_run(run.info.run_id, status="RUNNING")
    assert sync(home).model_dump() == {"created": 11, "present": 0}
    assert content(home) == whole


def test_stages_are_nested_under_their_pipeline(registered):
    found = everything(registered.home)
    parent = found["text2sql-a"]
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["prefect.flow_run_id"] == "0a0a"
    assert parent.data.tags["posttrain.node.evaluate.rl"].startswith("completed ")
    children = {
        run.data.tags.get("mlflow.parentRunId") for name, run in found.items() if name != "text2sql-a"
    }
    assert children == {parent.info.run_id}
    assert len(found) == 12
    with connect(registered.home) as tracking:
        artifacts = [file.path for file in tracking.client.list_artifacts(parent.info.run_id)]
    assert artifacts == ["recipe.json"]


def test_a_stage_says_what_it_was_made_from_and_what_it_made(registered):
    rl, manifest = everything(registered.home)["rl"], registered.made["rl"]
    assert rl.data.tags["posttrain.key"] == manifest.key
    assert rl.data.tags["posttrain.out.sha256"] == manifest.outputs["checkpoint"].digest
    assert rl.data.tags["mlflow.source.git.commit"] == "c" * 40
    assert rl.data.params == {"steps": "3"}
    data = {tag.value for found in rl.inputs.dataset_inputs for tag in found.tags if tag.key == "sha256"}
    assert data == {manifest.inputs["archive"].digest, manifest.inputs["prompts"].digest}
    models = {model.model_id: model for model in models_of(registered.home).values()}
    assert [models[found.model_id].name for found in rl.inputs.model_inputs] == ["opd"]
    assert [models[found.model_id].name for found in rl.outputs.model_outputs] == ["rl"]
    with connect(registered.home) as tracking:
        history = tracking.client.get_metric_history(rl.info.run_id, "distinct_correct")
        files = {file.path for file in tracking.client.list_artifacts(rl.info.run_id)}
    assert [(point.step, point.value) for point in history] == [(n, 2 + n / 10) for n in range(1, 13)]
    assert files == {"manifest.json", "contracts", "MODEL_CARD.md"}


def test_evaluations_are_metrics_of_the_model_and_no_bytes_are_copied(registered):
    model = models_of(registered.home)["rl"]
    assert model.tags["sha256"] == registered.made["rl"].outputs["checkpoint"].digest
    rows = (
        registered.store.folder("evaluate", registered.made["evaluate.rl"].key)
        / "outputs/summary/summary.json"
    )
    mean = json.loads(rows.read_text())["scopes"]["overall"]["metrics"]["pass@1"]["mean"]
    assert [point.value for point in model.metrics if point.key == "pass_at_1"] == [pytest.approx(mean)]
    assert not list(registered.home.mlflow.rglob("*.safetensors"))


def test_a_killed_sync_is_completed_by_the_next(pipeline):
    home = pipeline.home
    program = "import sys; from pathlib import Path; from tasks.lineage.project import sync; "
    program += "from tasks.store.home import Home; sync(Home(Path(sys.argv[1])))"
    child = subprocess.Popen([sys.executable, "-c", program, str(home.root)], cwd=ROOT)
    deadline = time.monotonic() + 60
    while not any(home.mlflow.glob("artifacts/*/*/artifacts/manifest.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    done = sync(home)
    assert done.created > 0 and done.created + done.present == 11
    found = everything(home)
    assert len(found) == 12 and {run.info.status for run in found.values()} == {"FINISHED"}
    assert len(models_of(home)) == 4


def test_a_run_in_its_last_lines_is_finished(home, new_pipeline):
    last = new_pipeline("text2sql-a").run(until="prompts")
    with last.ledger.alive():
        sync(home)
    assert everything(home)["text2sql-a"].info.status == "FINISHED"


def test_a_second_run_that_reuses_everything_is_a_parent_that_says_so(home, new_pipeline):
    first = new_pipeline("text2sql-a").run(until="base")
    new_pipeline("text2sql-b").run(until="base").ledger.close(runs.RunState.COMPLETED)
    assert sync(home).created == 2
    second = everything(home)["text2sql-b"]
    assert second.data.tags["posttrain.node.base"] == f"reused {first.made['base'].key}"
    assert second.info.status == "FINISHED"


def test_one_run_can_be_synced_with_what_it_stands_on(home, new_pipeline):
    new_pipeline("text2sql-a").run(until="evaluate.base")
    new_pipeline("text2sql-b").run(base_steps=9, until="base")
    assert sync(home, run_id="text2sql-b").created == 2  # its base, and the prompts that it reused
    found = everything(home)
    assert set(found) == {"text2sql-a", "text2sql-b", "prompts", "base"}
    assert found["prompts"].data.tags["mlflow.parentRunId"] == found["text2sql-a"].info.run_id
    assert found["text2sql-a"].info.status == "FAILED"  # nobody works on it and it was never closed


def test_a_run_whose_ledger_was_tidied_away_keeps_its_results(home, new_pipeline):
    run = new_pipeline("text2sql-a").run(until="base")
    shutil.rmtree(run.ledger.folder)
    assert sync(home).created == 2
    assert everything(home)["text2sql-a"].info.status == "FINISHED"


def test_a_run_that_failed_is_failed_there(home, new_pipeline):
    half = new_pipeline("text2sql-a").run(until="sft")
    half.ledger.close(runs.RunState.FAILED, "the disk is full")
    sync(home)
    assert everything(home)["text2sql-a"].info.status == "FAILED"


def test_producers_come_before_consumers(pipeline):
    manifests = list(Store(pipeline.home).manifests())
    place = {manifest.key: index for index, manifest in enumerate(in_order(reversed(manifests)))}
    assert len(place) == 11
    assert all(place[record.key] < place[m.key] for m in manifests for record in m.inputs.values())
    wanted = needed_by(in_order(manifests), {pipeline.made["sft"].key})
    assert [manifest.stage for manifest in wanted] == ["prompts", "base", "sft"]
