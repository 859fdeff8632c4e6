"""A flow that is broken off anywhere goes on where it was, to the bytes of an uninterrupted one."""

import json
import os
import shutil
import signal

import pytest
from toy_stages.counter.params import CounterParams
from toy_stages.flow import RUNTIME

from stages.errors import ExitCode, StageStopped
from stages.spec import Runtime
from tasks import runs
from tasks.process.attempt import StageFailed
from tasks.runs import RunState
from tasks.stage import stage


@pytest.fixture(scope="module")
def uninterrupted(elsewhere):
    return elsewhere.digests(elsewhere.go())


@pytest.mark.parametrize("deed", ["raise", "die", "exit"])
def test_a_broken_stage_resumes_at_its_saved_step(toys, uninterrupted, monkeypatch, deed):
    monkeypatch.setenv("TOY_DEED", f"{deed}@3")
    with pytest.raises(StageFailed) as failure:
        toys.go()
    assert toys.heard.steps("one") == [1, 2, 3]
    assert "one failed" in str(failure.value) and str(failure.value.log) in str(failure.value)
    monkeypatch.delenv("TOY_DEED")
    assert toys.plan()["one"].action == "resume"
    assert toys.plan()["one"].step == 3

    run = toys.go()
    assert toys.heard.steps("one") == [4, 5, 6]
    assert toys.digests(run) == uninterrupted
    assert [record.attempts for record in run.nodes()] == [2, 1]


def test_the_failure_tells_what_the_stage_said(toys, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "refuse@1")
    with pytest.raises(StageFailed, match="one failed: the toy refuses to count further"):
        toys.go()
    monkeypatch.setenv("TOY_DEED", "raise@1")
    with pytest.raises(StageFailed, match="one failed: ValueError: the toy broke") as failure:
        toys.go()
    log = failure.value.log.read_text()
    assert "Traceback" in log and "attempt 1" in log and "attempt 2" in log


def test_metrics_of_a_resumed_stage_have_each_step_once(toys, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "die@3")
    with pytest.raises(StageFailed, match="SIGKILL"):
        toys.go()
    monkeypatch.delenv("TOY_DEED")
    run = toys.go()
    one = run.nodes()[0]
    kept = toys.home.store / "objects" / one.stage / one.key
    steps = [json.loads(line)["step"] for line in (kept / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert "attempt 2" in (kept / "log.txt").read_text()
    assert not (toys.home.store / "work" / one.stage / one.key).exists()


def test_sigterm_stops_at_a_step_boundary_with_75_and_it_resumes(
    home, toys, program, until, tmp_path, uninterrupted
):
    pids = tmp_path / "pids"
    flow = program(TOY_DEED="signal@2", TOY_PIDS=str(pids))
    until(pids.exists)
    flow.send_signal(signal.SIGTERM)
    _, said = flow.communicate(timeout=30)
    assert flow.returncode == ExitCode.STOPPED, said
    assert "Traceback" not in said
    plan = toys.plan()["one"]
    assert (plan.action, plan.step) == ("resume", 3)
    assert toys.digests(toys.go()) == uninterrupted
    assert toys.heard.steps("one") == [4, 5, 6]


def test_a_second_signal_kills(home, program, until, alive, tmp_path):
    pids = tmp_path / "pids"
    flow = program(TOY_DEED="breed@2", TOY_PIDS=str(pids))  # sleeps through the first request
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    stage, sleeper = map(int, pids.read_text().split())
    flow.send_signal(signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        flow.communicate(timeout=0.5)
    assert alive(stage)
    flow.send_signal(signal.SIGINT)
    flow.communicate(timeout=30)
    assert flow.returncode == ExitCode.STOPPED
    assert not alive(stage) and not alive(sleeper)


def test_a_killed_flow_takes_its_stage_and_its_stages_children_along(
    home, toys, program, until, alive, tmp_path, uninterrupted
):
    pids = tmp_path / "pids"
    flow = program(TOY_DEED="breed@2", TOY_PIDS=str(pids))
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    stage, sleeper = map(int, pids.read_text().split())
    assert alive(stage) and alive(sleeper)
    flow.kill()
    flow.wait()
    until(lambda: not alive(stage) and not alive(sleeper))
    assert toys.digests(toys.go()) == uninterrupted
    assert toys.heard.steps("one") == [3, 4, 5, 6]


def test_another_runtime_starts_over_and_says_why(toys, uninterrupted, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "die@3")
    with pytest.raises(StageFailed):
        toys.go()
    monkeypatch.delenv("TOY_DEED")
    other = RUNTIME.model_copy(update={"threads": 2})
    assert "threads 1 -> 2" in toys.plan(runtime=other)["one"].reason
    run = toys.go(runtime=other)
    assert toys.heard.steps("one") == [1, 2, 3, 4, 5, 6]
    assert toys.heard.notices() == [
        "one starts over: its work began under another runtime (threads 1 -> 2)",
    ]
    assert run.node("one").notices == toys.heard.notices()
    assert toys.digests(run) == uninterrupted


def test_a_runtime_that_changes_no_result_resumes(toys, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "die@3")
    with pytest.raises(StageFailed):
        toys.go()
    monkeypatch.delenv("TOY_DEED")
    toys.go(runtime=Runtime(threads=1, save_every_s=60, verifier_workers=2))
    assert toys.heard.steps("one") == [4, 5, 6]
    assert toys.heard.notices() == []


@pytest.mark.parametrize("crumb", ["work", "out", "object"])
def test_a_torn_step_and_a_dead_attempts_outputs_are_not_seen(toys, uninterrupted, monkeypatch, crumb):
    monkeypatch.setenv("TOY_DEED", "die@3")
    with pytest.raises(StageFailed):
        toys.go()
    monkeypatch.delenv("TOY_DEED")
    (work,) = (toys.home.store / "work").glob("*/*")
    torn = work / "steps" / ".tmp-0123456789abcdef"
    shutil.copytree(work / "steps" / "step-000000003", torn)
    (torn / "state.json").write_text("{")
    if crumb != "work":
        (work / crumb / "unknown").mkdir(parents=True)
        (work / crumb / "unknown" / "half").write_text("half")
    run = toys.go()
    assert toys.heard.steps("one") == [4, 5, 6]
    assert toys.digests(run) == uninterrupted


def test_two_flows_at_once_one_owns_the_stage_the_other_is_told_or_waits(
    home, program, until, tmp_path, uninterrupted
):
    first = program(TOY_STEP_S="0.4")
    until(lambda: list((home.store / "work").glob("*/*/attempt.json")))
    impatient = program()
    waiting = program("--wait", "60")
    _, said = impatient.communicate(timeout=30)
    assert impatient.returncode == ExitCode.FAILED
    assert f"process {first.pid} on" in said and "node one" in said and "Traceback" not in said
    results = [json.loads(flow.communicate(timeout=60)[0]) for flow in (first, waiting)]
    assert results == [uninterrupted["two"]] * 2
    assert len(list((home.store / "objects").glob("*/*"))) == 2


def test_a_run_stopped_between_stages_starts_no_other(toys):
    def flow():
        one = stage("one", CounterParams(steps=1))
        os.kill(os.getpid(), signal.SIGINT)
        stage("two", CounterParams(steps=1), before=one["sum"])

    with pytest.raises(StageStopped, match="before two"):
        toys.go(flow)
    assert [state for _, state in toys.heard.states] == ["running", "completed", "stopped"]


def test_the_run_says_how_it_ended(toys, monkeypatch, home):
    monkeypatch.setenv("TOY_DEED", "raise@1")
    with pytest.raises(StageFailed):
        toys.go()
    failed = runs.latest(home)
    assert failed.state() is RunState.FAILED
    assert "the toy broke" in failed.record().message
    monkeypatch.delenv("TOY_DEED")
    toys.go(run=failed)
    assert failed.state() is RunState.COMPLETED
    assert failed.record().message == ""
