"""Runs by the command line, each a real process under a real Prefect server; tests differ by seed."""

import os
import signal
import sqlite3
from pathlib import Path

from tasks.lineage.connection import connect
from tasks.runs import Run
from tasks.store.home import Home

FLOW = "toy_flows.counting"
NODES = ("one", "other", "two")
SHAPE = {"stage", "node", "key", "digest", "state", "attempts", "seconds", "step", "total", "message"}
SLOW = {"TOY_STEP_S": "0.4"}


def states(found) -> dict[str, str]:
    return {stage["node"]: stage["state"] for stage in found["stages"]}


def digests(found) -> dict[str, str]:
    return {stage["node"]: stage["digest"] for stage in found["stages"]}


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_a_second_run_reuses_every_stage_and_says_so(posttrain, finished):
    assert states(finished) == dict.fromkeys(NODES, "completed")
    out, err = posttrain("run", FLOW, "--set", "seed=1")
    assert "reused: every node" in out
    assert "lineage  posttrain lineage audit" in out and "UIs      posttrain up" in out
    assert "3 to reuse: nothing is left to do" in out
    assert all(f"{node}: reused" in err for node in NODES)
    _, err = posttrain("resume", "--last")
    assert "is completed: there is nothing to go on with" in err
    second = posttrain.json("status", "--last")
    assert states(second) == dict.fromkeys(NODES, "reused")
    assert digests(second) == digests(finished)
    assert second["run"] != finished["run"]


def test_status_has_the_shape_that_scripts_read(posttrain, finished):
    found = posttrain.json("status", finished["run"])
    assert {"run", "flow", "profile", "state", "pid", "started", "ended", "message", "stages"} == set(found)
    assert all(set(stage) == SHAPE for stage in found["stages"])
    assert all(stage["key"] and stage["digest"].startswith("sha256:") for stage in found["stages"])
    assert set(finished) == {*found, "metrics", "decision", "report"}
    assert found["run"] in {run["run"] for run in posttrain.json("status")}
    shown, _ = posttrain("status", found["run"])
    assert all(node in shown for node in NODES)


def test_ctrl_c_and_cancel_stop_at_a_step_and_say_how_to_go_on(posttrain):
    process = posttrain.start("run", FLOW, "--set", "seed=5", "--set", "one.steps=8", **SLOW)
    run = posttrain.run_of(process)
    _, refused = posttrain("resume", run.id, expect=2)
    assert f"run {run.id} is alive: process {process.pid}" in refused
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "stopping at the next step boundary (again to kill)" in err
    assert f"go on with `posttrain resume {run.id}`" in err
    assert "Traceback" not in out + err
    stopped = posttrain.json("status", run.id)
    assert (stopped["state"], states(stopped)["one"]) == ("stopped", "stopped")

    process = posttrain.start("resume", run.id, **SLOW)
    posttrain.run_of(process, at_step=(stopped["stages"][0]["step"] or 0) + 1)
    _, err = posttrain("cancel", run.id)
    assert f"run {run.id} is stopped; go on with `posttrain resume {run.id}`" in err
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "one: goes on from steps" in err
    _, err = posttrain("cancel", run.id, expect=2)
    assert "is not running: it is stopped" in err


def test_a_failed_stage_is_one_sentence_and_its_log_can_be_read(posttrain):
    _, err = posttrain("run", FLOW, "--set", "seed=7", expect=1, TOY_DEED="raise@2", TOY_NODE="two")
    assert "error: two failed: ValueError: the toy broke" in err
    assert "go on with `posttrain resume" in err
    found = posttrain.json("status", "--last")
    assert (found["state"], states(found)["two"]) == ("failed", "failed")
    with connect(Home(posttrain.home)) as tracking:  # what it had finished is in MLflow
        (experiment,) = tracking.client.search_experiments(filter_string=f"name = '{FLOW}'")
        mine = f"tags.`posttrain.run_id` = '{found['run']}'"
        synced = tracking.client.search_runs([experiment.experiment_id], filter_string=mine)
    assert {run.data.tags.get("posttrain.node") for run in synced} >= {"one", "other"}
    process = posttrain.start("logs", "--last", "two")
    log, _ = process.communicate(timeout=60)
    assert "Traceback" in log and "ValueError: the toy broke" in log
    assert "attempt 1 of one" not in log
    everything, _ = posttrain.start("logs", found["run"]).communicate(timeout=60)
    assert "attempt 1 of one" in everything


def test_from_makes_a_node_and_its_followers_anew_and_gc_drops_what_they_replace(posttrain, finished):
    later = posttrain.json("run", FLOW, "--set", "seed=1", "--from", "one")
    assert states(later) == {"one": "completed", "other": "reused", "two": "completed"}
    assert digests(later) == digests(finished)
    pieces = posttrain.json("gc")
    assert [piece["why"] for piece in pieces] == ["superseded by a forced rerun"] * 2
    assert all(Path(piece["path"]).exists() for piece in pieces)
    assert all(piece["removed"] for piece in posttrain.json("gc", "--delete"))
    assert not any(Path(piece["path"]).exists() for piece in pieces)
    plan = posttrain.json("plan", FLOW, "--set", "seed=1")
    assert [node["action"] for node in plan["nodes"]] == ["reuse"] * 3


def test_lineage_is_audited_and_a_flipped_byte_is_named(posttrain, finished):
    target = f"{finished['run']}/two"
    stage = finished["stages"][0]
    audited = posttrain.json("lineage", "audit", target, "--verify")
    assert stage["key"] in {result["key"] for result in audited["results"]}
    file = (
        posttrain.home / "store" / "objects" / stage["stage"] / stage["key"] / "outputs" / "sum" / "sum.txt"
    )
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    _, err = posttrain("lineage", "audit", target, "--verify", expect=4)
    file.write_bytes(content)
    assert str(file) in err


def test_a_server_that_is_named_but_away_is_told(posttrain):
    _, err = posttrain("run", FLOW, expect=1, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert "http://127.0.0.1:9/api" in err and "unset PREFECT_API_URL" in err


def test_a_killed_run_takes_its_server_along_and_resumes_to_the_same_digests(alone, finished, until):
    process = alone.start("run", FLOW, "--set", "seed=1", "--force", "one", TOY_NODE="one", **SLOW)
    run = alone.run_of(process, at_step=2)
    below = children(process.pid)
    assert len(below) >= 2  # the server and the stage
    process.kill()
    process.communicate()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    killed = alone.json("status", run.id)
    assert (killed["state"], states(killed)["one"]) == ("crashed", "crashed")
    _, err = alone("resume", run.id)
    assert f"run {run.id} is marked as crashed" in err
    assert "one: goes on from steps" in err
    assert digests(alone.json("status", run.id)) == digests(finished)
    assert recorded(alone.home, run) == {
        "flow": ["Completed"],
        "tasks": {"one": "Completed", "other": "Reused", "two": "Reused"},
        "states": {"Pending": 3, "Running": 3, "Completed": 1, "Reused": 2},
    }


def recorded(home: Path, run: Run) -> dict[str, object]:
    """What Prefect's database knows of the run's last flow run, read when its private server has ended."""
    identity = (run.record().flow_run_id or "").replace("-", "")
    database = sqlite3.connect(home / "prefect" / "prefect.db")
    own = f"replace(flow_run_id, '-', '') = '{identity}'"
    flows = database.execute(f"select state_name from flow_run where replace(id, '-', '') = '{identity}'")
    tasks = database.execute(f"select name, state_name from task_run where {own}")
    history = database.execute(
        "select state.name, count(*) from task_run_state state join task_run run "
        f"on run.id = state.task_run_id where {own} group by 1"
    )
    found = {
        "flow": [name for (name,) in flows],
        "tasks": dict(tasks.fetchall()),
        "states": dict(history.fetchall()),
    }
    database.close()
    return found
