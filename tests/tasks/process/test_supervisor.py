"""A child is heard while it works, and nothing of it outlives its supervisor."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.spec import EVENTS_FD, Event
from tasks.process.supervisor import supervise

PROJECT = Path(__file__).parents[3]
SPEAK = f"import os, sys, time; pipe = os.fdopen(int(os.environ[{EVENTS_FD!r}]), 'w', buffering=1)\n"
SLEEPER = "[sys.executable, '-S', '-c', 'import time; time.sleep(600)']"
BREED = f"import os, subprocess, sys; p = subprocess.Popen({SLEEPER}, close_fds=False)\n"


class Child:
    def __init__(self, log: Path) -> None:
        self.log = log
        self.heard: list[Event] = []

    def run(self, program: str, on_event=None) -> int:
        argv = [sys.executable, "-S", "-c", program]
        on_event = on_event or self.heard.append
        return supervise(argv, environment=dict(os.environ), log=self.log, on_event=on_event)


@pytest.fixture
def child(tmp_path) -> Child:
    return Child(tmp_path / "log.txt")


def test_events_come_in_order_and_output_goes_to_the_log(child):
    child.log.write_text("earlier\n")
    code = child.run(
        SPEAK
        + 'for i in range(2000): pipe.write(\'{"kind": "progress", "step": %d}\\n\' % i)\n'
        + "print('out', flush=True); print('err', file=sys.stderr)"
    )
    assert code == 0
    assert [event.step for event in child.heard] == list(range(2000))
    assert child.log.read_text() == "earlier\nout\nerr\n"


def test_events_are_heard_at_once(child):
    heard_at = []
    child.run(
        SPEAK + 'pipe.write(\'{"kind": "started"}\\n\'); time.sleep(0.5)',
        on_event=lambda event: heard_at.append(time.monotonic()),
    )
    assert time.monotonic() - heard_at[0] >= 0.4


def test_torn_and_foreign_lines_are_passed_over(child):
    child.run(SPEAK + 'pipe.write(\'nonsense\\n{"kind": "started"}\\n{"kind": "prog\')')
    assert [event.kind for event in child.heard] == ["started"]


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise SystemExit(75)", 75), ("import os; os.kill(os.getpid(), 9)", -9), ("1/0", 1)],
)
def test_the_exit_code_is_the_childs(child, program, code):
    assert child.run(program) == code


def test_what_a_child_leaves_behind_is_killed_even_if_it_holds_the_pipe(child, tmp_path, until, alive):
    pid = tmp_path / "pid"
    assert child.run(BREED + f"open({str(pid)!r}, 'w').write(str(p.pid))") == 0
    until(lambda: not alive(int(pid.read_text())))


def test_an_error_of_the_listener_ends_the_child(child, tmp_path, alive):
    pid = tmp_path / "pid"

    def fail(event):
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError):
        child.run(
            SPEAK
            + f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
            + 'pipe.write(\'{"kind": "started"}\\n\'); time.sleep(600)',
            on_event=fail,
        )
    assert not alive(int(pid.read_text()))


def test_the_supervisors_death_takes_all_along_without_the_childs_help(tmp_path, until, alive):
    """The child here never asked the kernel to die with its owner; the guard sees to it."""
    pids = tmp_path / "pids"
    family = BREED + f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{p.pid}}'); p.wait()"
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tasks.process.supervisor import supervise\n"
        f"supervise([sys.executable, '-S', '-c', {family!r}], environment=dict(os.environ),\n"
        f"          log=Path({str(tmp_path / 'log.txt')!r}), on_event=print)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT)
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    pair = [int(pid) for pid in pids.read_text().split()]
    assert all(map(alive, pair))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until(lambda: not any(map(alive, pair)))


def test_handlers_are_as_before_afterwards(child):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    child.run("pass")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_missing_interpreter_is_an_error_at_once(child, tmp_path):
    with pytest.raises(FileNotFoundError):
        supervise([str(tmp_path / "none")], environment={}, log=child.log, on_event=print)
