"""One owner per key, found out from the kernel and not from what a file says."""

import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tasks.store.lock import Owner, StageBusy, held_by, locked

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock until it is killed."""
    path = tmp_path / "locks" / "toy.lock"
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom tasks.store.lock import Owner, locked\n"
        "with locked(Path(sys.argv[1]), Owner.this_process('run-1', 'rl'), what='rl'):\n"
        "    print('held', flush=True)\n    time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, cwd=PROJECT
    )
    assert process.stdout.readline() == "held\n"
    yield path, process
    process.kill()
    process.communicate()


def me() -> Owner:
    return Owner.this_process("run-2", "sft")


def test_a_held_lock_names_its_owner(holder):
    path, process = holder
    with pytest.raises(StageBusy) as busy, locked(path, me(), what="rl"):
        pass
    assert busy.value.owner.pid == process.pid
    assert f"rl is being worked on by process {process.pid}" in str(busy.value)
    assert "run run-1, node rl" in str(busy.value)
    assert held_by(path) == busy.value.owner


def test_the_lock_of_a_killed_process_is_free_whatever_its_file_says(holder):
    path, process = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert str(process.pid) in path.read_text()
    assert held_by(path) is None
    with locked(path, me(), what="rl"):
        assert held_by(path).run_id == "run-2"
    assert held_by(path) is None


def test_a_waiter_gets_the_lock_when_its_owner_dies(holder):
    path, process = holder
    killed = subprocess.Popen(["sh", "-c", f"sleep 0.6; kill -9 {process.pid}"])
    began = time.monotonic()
    with locked(path, me(), what="rl", wait_s=30):
        assert time.monotonic() - began >= 0.3
    killed.wait()


def test_a_lock_is_released_by_an_exception_and_excludes_within_a_process(tmp_path):
    path = tmp_path / "toy.lock"
    with pytest.raises(RuntimeError), locked(path, me(), what="rl"):
        with pytest.raises(StageBusy), locked(path, me(), what="rl"):
            pass
        raise RuntimeError
    with locked(path, me(), what="rl"):
        pass


def test_nobody_holds_what_is_not_there(tmp_path):
    assert held_by(tmp_path / "none.lock") is None


def test_an_unsigned_lock_is_held_by_somebody(tmp_path):
    path = tmp_path / "toy.lock"
    with locked(path, me(), what="rl"):
        path.write_text("")
        assert held_by(path) is not None
        with pytest.raises(StageBusy, match="an unknown process"), locked(path, me(), what="rl"):
            pass


def test_an_owner_reads_as_a_sentence():
    owner = Owner(host="box", pid=7, since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), run_id="r", node="n")
    assert str(owner) == "process 7 on box since 2026-01-02 03:04:05 (run r, node n)"
