"""A server as a process of ours: a free port, its output in a log file, no longer alive than it should be."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stages.errors import PosttrainError
from stages.owner import die_with

LOCALHOST = "127.0.0.1"
POLL_S = 0.05
PROBE_S = 3.0
STOP_S = 10.0


class ServerFailed(PosttrainError):
    """A server did not start or does not answer."""


@dataclass(frozen=True)
class Server:
    """A started server; `process` leads a session of its own, so a terminal's Ctrl-C does not reach it."""

    name: str
    url: str
    log: Path
    process: subprocess.Popen[bytes]


def free_port(preferred: int | None = None) -> int:
    """`preferred` if nobody listens there, else a port that the kernel picks."""
    for port in [preferred, 0] if preferred else [0]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOCALHOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ServerFailed("this machine has no free port for a local server")


def start(
    name: str,
    argv: Sequence[str],
    *,
    url: str,
    log: Path,
    environment: Mapping[str, str],
    outlives_us: bool = False,
) -> Server:
    """Start `argv`. Unless `outlives_us`, the kernel ends it when this process ends, however that happens.

    Call it from the main thread: the kernel takes the end of the starting thread for the end of the owner.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=None if outlives_us else partial(die_with, os.getpid()),
        )
    return Server(name, url, log, process)


def answers(url: str, timeout_s: float = PROBE_S) -> bool:
    """Whether an HTTP server says 200 at `url`."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def wait_until_it_answers(
    server: Server, health: str, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Return when `health` answers. Raises ServerFailed, naming the log, if it ends first or is too slow."""
    deadline = time.monotonic() + timeout_s
    while not answers(health):
        if (code := server.process.poll()) is not None:
            raise ServerFailed(
                f"{server.name} ended with code {code} before it answered: read {server.log} "
                f"({_last_line(server.log)})"
            )
        if time.monotonic() > deadline:
            stop(server)
            raise ServerFailed(
                f"{server.name} did not answer at {server.url} within {timeout_s:.0f} s: read {server.log}"
            )
        meanwhile()
        time.sleep(POLL_S)


def stop(server: Server, timeout_s: float = STOP_S) -> None:
    """Ask a server to end, insist if it does not, and leave nothing of its session behind."""
    if server.process.poll() is None:
        server.process.terminate()
        try:
            server.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
    try:
        os.killpg(server.process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "it is empty"
