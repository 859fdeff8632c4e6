"""text2sql killed with SIGKILL at random points of each long stage, one after the other: the same digests.

Real processes throughout: the command line, its Prefect server, the stages and their verifier workers.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tasks import runs
from tasks.runs import NodeRecord, NodeState, RunState
from tasks.store.home import Home
from tasks.store.objects import Store
from tasks.store.work import Work

LONG = ("base", "teacher", "evaluate.base", "archive", "sft", "opd", "rl", "evaluate.rl")
OFTEN = ("--set", "runtime.save_every_s=0.2")  # enters no key: every long stage has saved a step when it dies
LIMIT_S = 1500
TRIES = 5
HASTE = 0.15  # a share below which the first saved step will do


@dataclass
class Victim:
    """A home, and the `posttrain run` that is started in it again and again."""

    home: Home
    log: Path
    arguments: Sequence[str] = ("text2sql", "--profile", "ci", *OFTEN)
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flows.cli.main", "run", *self.arguments]
        environment = {**os.environ, "POSTTRAIN_HOME": str(self.home.root), **self.variables}
        with self.log.open("ab") as file:
            return subprocess.Popen(
                command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def finish(self) -> dict[str, NodeRecord]:
        assert self.start().wait(LIMIT_S) == 0, self.tail()
        return {record.node: record for record in runs.latest(self.home).nodes()}

    def kill_in(self, node: str, share: float) -> NodeRecord:
        """SIGKILL it all once `node` has done `share` of its steps and saved one; the node as it then was.

        A node that was too quick is forgotten, and tried again with a smaller share.
        """
        for _ in range(TRIES):
            record = self._kill_once(node, share)
            if record.state is not NodeState.COMPLETED:
                return record
            shutil.rmtree(Store(self.home).folder(record.stage, record.key or ""))
            share /= 2
        raise AssertionError(f"{node} was too quick {TRIES} times:\n{self.tail()}")

    def _kill_once(self, node: str, share: float) -> NodeRecord:
        process = self.start()
        deadline = time.monotonic() + LIMIT_S
        while True:
            record = self._record(process, node)
            if record is not None and (record.state is NodeState.COMPLETED or self._due(record, share)):
                break
            assert process.poll() is None, f"the run ended before {node} did:\n{self.tail()}"
            assert time.monotonic() < deadline, f"{node} was not reached:\n{self.tail()}"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if Store(self.home).lookup(record.stage, record.key or ""):  # it ended while we looked
            return record.model_copy(update={"state": NodeState.COMPLETED})
        return record

    def _due(self, record: NodeRecord, share: float) -> bool:
        """By its saved steps: the ledger is a second late."""
        saved = Work(Store(self.home).work(record.stage, record.key or "")).saved_step() or 0
        return saved > 0 and (saved >= share * record.total if record.total else share < HASTE)

    def _record(self, process: subprocess.Popen[bytes], node: str) -> NodeRecord | None:
        """The node's record in the run that this process works on."""
        for run in reversed(runs.every(self.home)):
            owner = run.owner()
            if owner is not None and owner.pid == process.pid:
                return run.node(node)
        return None

    def resumed(self, node: str) -> NodeRecord | None:
        """The node's record in the run that completed it after it was killed."""
        made = [run.node(node) for run in runs.every(self.home)]
        done = [record for record in made if record is not None and record.state is NodeState.COMPLETED]
        return next((record for record in reversed(done) if record.attempts > 1), None)

    def tail(self) -> str:
        return self.log.read_text()[-3000:]


def kill_everywhere(victim: Victim, nodes: Sequence[str], rng: random.Random) -> dict[str, NodeRecord]:
    """Kill it once in each of the nodes and let it finish: the nodes of the last run. All of them resumed."""
    for node in nodes:
        killed = victim.kill_in(node, rng.uniform(0.2, 0.9))
        print(f"killed {node} beyond {killed.step} of {killed.total} {killed.unit}")
    last = victim.finish()
    for node in nodes:
        record = victim.resumed(node)
        assert record is not None, f"{node} was not resumed:\n{victim.tail()}"
        assert record.resumed_from, f"{node} began at its first step again:\n{victim.tail()}"
    assert not list(victim.home.store.glob("work/*/*")), "a finished run leaves no work folder"
    return last


def undisturbed(fresh: Path) -> Home:
    """POSTTRAIN_HOME if it holds a finished run of this recipe (as in CI), else a new home."""
    if named := os.environ.get("POSTTRAIN_HOME"):
        home = Home(Path(named).absolute())
        for run in runs.of_flows(home):
            record = run.record()
            if (record.flow, record.profile, record.state) == ("text2sql", "ci", RunState.COMPLETED):
                return home
    return Home(fresh)


@pytest.mark.oracle("6.6")
@pytest.mark.slow
@pytest.mark.timeout(3 * LIMIT_S)
def test_a_run_killed_in_every_long_stage_ends_with_the_digests_of_an_undisturbed_one(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed of the kill points: {seed}")
    expected = Victim(undisturbed(tmp_path / "undisturbed"), tmp_path / "undisturbed.log").finish()
    victim = Victim(Home(tmp_path / "killed"), tmp_path / "killed.log")
    last = kill_everywhere(victim, LONG, random.Random(seed))
    for node, record in expected.items():
        assert last[node].outputs == record.outputs, f"{node} differs; kill points of seed {seed}"
