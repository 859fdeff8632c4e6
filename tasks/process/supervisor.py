"""Runs the process of one stage attempt: its events come over a pipe, its output goes to a log.

The child leads a session of its own, so that a terminal's Ctrl-C reaches it through tasks.process.signals
only, and it never outlives us: the kernel kills it with its owner, a guard kills the rest of its group.
"""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from stages.spec import EVENTS_FD, Event
from tasks.process import guard, signals

OnEvent = Callable[[Event], None]
READ_BYTES = 65536


def supervise(argv: Sequence[str], *, environment: Mapping[str, str], log: Path, on_event: OnEvent) -> int:
    """Run `argv` to its end and return its exit code, negative for a signal.

    `on_event` is called in this thread for each event, in order. When it raises, or this thread is
    interrupted, the whole process group is killed before the exception goes on.
    """
    reading, writing = os.pipe()
    with signals.forwarded(), os.fdopen(reading, "rb", buffering=0) as events:
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**environment, EVENTS_FD: str(writing)},
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        finally:
            os.close(writing)
        try:
            with guarded(child.pid):
                signals.register(child.pid)
                for event in events_of(child, events.fileno()):
                    on_event(event)
                return child.wait()
        finally:
            signals.unregister(child.pid)
            kill_group(child)


@contextmanager
def guarded(group: int) -> Iterator[None]:
    """Within, the process group is killed if this process dies. See tasks.process.guard."""
    command = [sys.executable, "-I", "-S", guard.__file__, str(group)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield
        finally:
            watcher.communicate(guard.RELEASED)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child if it still runs, and whatever it left behind in its group."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def events_of(child: subprocess.Popen[bytes], pipe: int) -> Iterator[Event]:
    """The events of the child until it exits and its pipe is drained.

    Its exit, not the end of the pipe, ends the wait: a process that it leaves behind may hold the pipe open.
    """
    rest = b""
    exited = os.pidfd_open(child.pid)
    os.set_blocking(pipe, False)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            ready.register(exited, selectors.EVENT_READ)
            over = False
            while not over:
                over = any(key.fd == exited for key, _ in ready.select())
                while piece := _read(pipe):
                    *lines, rest = (rest + piece).split(b"\n")
                    yield from filter(None, map(_parse, lines))
                if piece == b"":  # every writer has closed it; only the exit is still to come
                    ready.unregister(pipe)
                    if not over:
                        ready.select()
                    over = True
    finally:
        os.close(exited)


def _read(pipe: int) -> bytes | None:
    """What is there now; empty at the end of the pipe, None when nothing is there yet."""
    try:
        return os.read(pipe, READ_BYTES)
    except BlockingIOError:
        return None


def _parse(line: bytes) -> Event | None:
    try:
        return Event.model_validate_json(line)
    except ValidationError:  # a line torn by a kill
        return None
