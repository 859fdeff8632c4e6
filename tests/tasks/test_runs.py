"""The ledger of runs, and what it says of runs whose process is gone."""

import signal
from datetime import UTC, datetime

import pytest

from stages.errors import UsageError
from stages.spec import Runtime
from tasks import runs
from tasks.run_session import start
from tasks.runs import NodeRecord, NodeState, RunState
from tasks.store.lock import Owner, StageBusy, locked
from tasks.store.objects import Store


@pytest.fixture
def run(home):
    recipe = {"rl": {"steps": 3}}
    return start(
        home,
        "toy",
        runtime=Runtime(threads=1),
        recipe=recipe,
        sources={"rl.steps": "--set rl.steps=3"},
        profile="ci",
        forced=["two"],
        from_node="one",
    )


def test_a_new_run_records_what_was_asked_for(run, home):
    record = runs.load(home, run.id).record()
    assert record.recipe == {"rl": {"steps": 3}}
    assert record.sources == {"rl.steps": "--set rl.steps=3"}
    assert (record.profile, record.forced, record.from_node) == ("ci", ["two"], "one")
    assert record.home == str(home.root)
    assert record.runtime["threads"] == 1
    flow, day, clock, tail = run.id.rsplit("-", 3)
    assert (flow, len(day), len(clock), len(tail)) == ("toy", 8, 6, 4)


def test_a_run_is_found_by_a_beginning_that_fits_one_only(run, home):
    other = start(home, "toy", runtime=Runtime())
    assert runs.load(home, run.id).id == run.id
    assert runs.latest(home).id == other.id
    assert runs.load(home, other.id[:-1] if run.id[:-1] != other.id[:-1] else other.id).id == other.id
    with pytest.raises(UsageError, match="fits 2 runs"):
        runs.load(home, "toy-")
    with pytest.raises(UsageError, match="no run 'sql'"):
        runs.load(home, "sql")


@pytest.mark.parametrize("kind", [runs.RunKind.MEASUREMENT, runs.RunKind.SCRIPT])
def test_the_last_run_is_one_of_a_flow(run, home, kind):
    other = start(home, "evaluate", kind=kind, runtime=Runtime())
    assert runs.latest(home).id == run.id
    assert [found.id for found in runs.every(home)] == [run.id, other.id]


def test_no_run_says_how_to_start_one(home):
    with pytest.raises(UsageError, match="posttrain run"):
        runs.latest(home)


def test_a_run_is_alive_while_its_lock_is_held(run):
    assert run.state() is RunState.CRASHED
    with run.alive():
        assert run.state() is RunState.RUNNING
        assert run.owner().run_id == run.id
        with pytest.raises(StageBusy, match=f"run {run.id} is being worked on"), run.alive():
            pass
    run.close(RunState.COMPLETED, "done")
    assert run.state() is RunState.COMPLETED
    assert run.record().ended is not None
    run.reopen()
    assert run.record().ended is None


def test_nodes_come_in_the_order_of_the_flow(run):
    run.expect([NodeRecord(node=node, stage="toy") for node in ("prompts", "base", "evaluate.base")])
    when = datetime.now(UTC)
    run.write_node(NodeRecord(node="late", stage="toy", state=NodeState.COMPLETED, started=when))
    run.write_node(NodeRecord(node="prompts", stage="toy", state=NodeState.COMPLETED, started=when))
    run.expect([NodeRecord(node=node, stage="toy") for node in ("prompts", "base", "evaluate.base")])
    assert [(record.node, record.state) for record in run.nodes()] == [
        ("prompts", "completed"),
        ("base", "waiting"),
        ("evaluate.base", "waiting"),
        ("late", "completed"),
    ]


def test_a_running_node_whose_lock_is_free_has_crashed(run, home):
    record = NodeRecord(node="one", stage="toy", key="0" * 64, state=NodeState.RUNNING)
    run.write_node(record)
    assert run.nodes()[0].state is NodeState.CRASHED
    lock = Store(home).lock("toy", "0" * 64)
    with locked(lock, Owner.this_process(run.id, "one"), what="one"):
        assert run.nodes()[0].state is NodeState.RUNNING
    with locked(lock, Owner.this_process("another run", "one"), what="one"):
        assert run.nodes()[0].state is NodeState.CRASHED
    with run.alive():  # it waits for the lock
        assert run.nodes()[0].state is NodeState.RUNNING


def test_a_killed_run_reads_as_crashed_and_is_resumed(home, toys, program, until):
    flow = program(TOY_STEP_S="0.3")
    until(lambda: list(home.runs.glob("*/nodes/one.json")) and runs.latest(home).nodes()[0].step)
    run = runs.latest(home)
    assert run.state() is RunState.RUNNING
    assert run.nodes()[0].state is NodeState.RUNNING
    assert run.owner().pid == flow.pid
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    assert run.state() is RunState.CRASHED
    assert run.nodes()[0].state is NodeState.CRASHED
    toys.go(run=run)
    assert run.state() is RunState.COMPLETED
    assert [record.state for record in run.nodes()] == ["completed", "completed"]
    assert toys.heard.steps("one")[0] > 1


def test_the_log_of_a_node_is_found_before_and_after_the_commit(run, home):
    store, key = Store(home), "0" * 64
    record = NodeRecord(node="one", stage="toy", key=key)
    assert run.log(record) is None
    for folder in (store.folder("toy", key), store.work("toy", key)):
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("")
        assert run.log(record) == folder / "log.txt"
