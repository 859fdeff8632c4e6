"""text2sql killed with SIGKILL at random points of each long stage, one after the other: the same digests.

Real processes throughout: the command line, its Prefect server, the stages and their verifier workers.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks import runs
from tasks.runs import NodeRecord, NodeState
from tasks.store.home import Home

LONG = ("base", "teacher", "archive", "opd", "rl", "evaluate.rl")
COMMAND = [sys.executable, "-m", "flows.cli.main", "run", "text2sql", "--profile", "ci"]
LIMIT_S = 1500


def start(home: Home, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "POSTTRAIN_HOME": str(home.root)}
    with log.open("ab") as file:
        return subprocess.Popen(
            COMMAND, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


def finish(home: Home, log: Path) -> list[NodeRecord]:
    process = start(home, log)
    assert process.wait(LIMIT_S) == 0, log.read_text()[-3000:]
    return runs.latest(home).nodes()


def kill_within(home: Home, log: Path, node: str, share: float) -> NodeRecord | None:
    """Run until `node` has done `share` of its steps, then SIGKILL it all; None if the node was too quick."""
    process = start(home, log)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the run ended before {node} did:\n{log.read_text()[-3000:]}"
        record = of(home, process, node)
        if record is not None and record.state is NodeState.COMPLETED:
            break
        if record is not None and record.step and record.total and record.step >= share * record.total:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return record if record is not None and record.state is NodeState.RUNNING else None


def of(home: Home, process: subprocess.Popen[bytes], node: str) -> NodeRecord | None:
    """The node's record in the run that this process works on."""
    for run in reversed(runs.every(home)):
        owner = run.owner()
        if owner is not None and owner.pid == process.pid:
            return run.node(node)
    return None


@pytest.mark.slow
@pytest.mark.timeout(3 * LIMIT_S)
def test_a_run_killed_in_every_long_stage_ends_with_the_digests_of_an_undisturbed_one(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed of the kill points: {seed}")
    rng = random.Random(seed)
    undisturbed_home = Home(Path(os.environ.get("POSTTRAIN_HOME", tmp_path / "undisturbed")).resolve())
    undisturbed = {record.node: record for record in finish(undisturbed_home, tmp_path / "undisturbed.log")}

    home, log = Home(tmp_path / "killed"), tmp_path / "killed.log"
    killed = {}
    for node in LONG:
        share = rng.uniform(0.3, 0.9)
        if record := kill_within(home, log, node, share):
            killed[node] = record
            print(f"killed {node} at {record.step} of {record.total} {record.unit}")
    assert {"base", "teacher"} <= killed.keys(), "the longest stages were not caught in the middle"
    last = {record.node: record for record in finish(home, log)}

    for node, record in undisturbed.items():
        assert last[node].outputs == record.outputs, f"{node} differs; kill points of seed {seed}"
    resumed = [record for record in last.values() if record.attempts > 1]
    assert not list(home.store.glob("work/*/*")), "a finished run leaves no work folder"
    print(f"resumed in the last run: {[record.node for record in resumed]}")
    continued = [line for line in log.read_text().splitlines() if "resum" in line]
    assert len(continued) >= 2, log.read_text()[-3000:]
