"""The flow under a real Prefect server: the store decides what is done again, Prefect shows it."""

import asyncio
import os
import signal
import threading

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.exceptions import TerminationSignal
from prefect.testing.utilities import prefect_test_harness
from pydantic import BaseModel
from toy_stages.counter.params import CounterParams
from toy_stages.flow import RUNTIME, two_counters

from stages.errors import StageStopped
from stages.spec import Runtime
from tasks import runs
from tasks.process.attempt import StageFailed
from tasks.runs import RunState


@pytest.fixture(scope="module", autouse=True)
def server():
    with prefect_test_harness(server_startup_timeout=120):
        yield


class ToyRecipe(BaseModel):
    runtime: Runtime = RUNTIME
    steps: int = 6


@flow(name="toy")
def counters(recipe: ToyRecipe) -> None:
    two_counters(CounterParams(steps=recipe.steps))


@flow(name="toy-retried", retries=1)
def retried() -> None:
    two_counters(CounterParams(steps=6))


def task_runs(flow_run_id: str):
    async def read():
        async with get_client() as client:
            return await client.read_task_runs(
                flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
            )

    found = sorted(asyncio.run(read()), key=lambda run: run.expected_start_time)
    return {run.name: run for run in found}


def shown(run) -> dict[str, str]:
    return {name: task.state.name for name, task in task_runs(run.record().flow_run_id).items()}


def test_a_second_flow_run_reuses_every_stage_and_shows_it(toys, until):
    first = toys.go(lambda: counters(ToyRecipe()))
    until(lambda: shown(first) == {"one": "Completed", "two": "Completed"})
    second = toys.go(lambda: counters(ToyRecipe()))
    until(lambda: shown(second) == {"one": "Reused", "two": "Reused"})
    assert toys.digests(second) == toys.digests(first)
    assert toys.states(second) == {"one": "reused", "two": "reused"}
    record = second.node("one")
    message = task_runs(second.record().flow_run_id)["one"].state.message
    assert record.key[:12] in message and record.digest[:19] in message


def test_a_retry_by_prefect_resumes_the_stage_and_reuses_the_rest(toys, monkeypatch, until):
    monkeypatch.setenv("TOY_DEED", "die@3")
    monkeypatch.setenv("TOY_NODE", "two")
    monkeypatch.setenv("TOY_ONCE", "1")
    run = toys.go(retried)
    assert [state for node, state in toys.heard.states if node == "one"] == [
        "running",
        "completed",
        "reused",
    ]
    assert toys.heard.steps("one") == [1, 2, 3, 4, 5, 6]
    assert toys.heard.steps("two") == [1, 2, 3, 4, 5]
    assert run.state() is RunState.COMPLETED
    assert run.node("two").attempts == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_under_prefect_stops_at_a_step_boundary(toys, monkeypatch, tmp_path, until, number):
    pids = tmp_path / "pids"
    monkeypatch.setenv("TOY_DEED", "signal@2")
    monkeypatch.setenv("TOY_PIDS", str(pids))

    def later():
        until(pids.exists)
        os.kill(os.getpid(), number)

    user = threading.Thread(target=later)
    user.start()
    with pytest.raises(StageStopped, match="one stopped at a step boundary"):
        toys.go(lambda: counters(ToyRecipe()))
    user.join()
    run = runs.latest(toys.home)
    assert run.state() is RunState.STOPPED
    assert toys.states(run) == {"one": "stopped"}
    monkeypatch.delenv("TOY_DEED")
    toys.go(lambda: counters(ToyRecipe()), run=run)
    assert toys.heard.steps("one") == [4, 5, 6]
    assert run.state() is RunState.COMPLETED


def test_under_a_worker_the_signal_reaches_prefect_when_the_step_is_saved(
    toys, home, monkeypatch, tmp_path, until
):
    """The worker's way: no session is given, and Prefect decides by SIGTERM whether to reschedule."""
    pids = tmp_path / "pids"
    monkeypatch.setenv("POSTTRAIN_HOME", str(home.root))
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "set by a worker")
    monkeypatch.setenv("TOY_DEED", "signal@2")
    monkeypatch.setenv("TOY_PIDS", str(pids))
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))

    def later():
        until(pids.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    worker = threading.Thread(target=later)
    worker.start()
    try:
        with pytest.raises(TerminationSignal):
            counters(ToyRecipe(steps=8))
    finally:
        signal.signal(signal.SIGTERM, before)
        worker.join()
    assert received == [signal.SIGTERM]  # Prefect passes it on once it has taken note
    (run,) = runs.every(home)
    assert toys.states(run) == {"one": "stopped"}
    line = toys.plan(lambda: two_counters(CounterParams(steps=8)))["one"]
    assert (line.action, line.step) == ("resume", 3)


def test_a_flow_without_a_session_makes_its_own_from_the_environment(home, monkeypatch, toys):
    monkeypatch.setenv("POSTTRAIN_HOME", str(home.root))
    monkeypatch.setenv("TOY_DEED", "raise@3")
    with pytest.raises(StageFailed, match="the toy broke"):
        counters(ToyRecipe(steps=7))
    (run,) = runs.every(home)
    assert run.record().flow == "toy"
    assert run.record().flow_run_id
    assert run.record().recipe["steps"] == 7
    assert toys.states(run) == {"one": "failed"}
    monkeypatch.delenv("TOY_DEED")
    line = toys.plan(lambda: two_counters(CounterParams(steps=7)))["one"]
    assert (line.action, line.step) == ("resume", 3)
