"""Spinning only where nobody is disturbed by it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.process import cores


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """That many processes which do nothing but work."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "print('on', flush=True)\nwhile True: pass"], stdout=-1)
        for _ in range(processes)
    ]
    try:
        for process in spinning:
            assert process.stdout is not None and process.stdout.readline()
        yield
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


def test_a_busy_machine_is_seen_as_busy() -> None:
    every_core = os.cpu_count() or 1
    with busy(every_core):
        assert cores.idle_cores(0.3) < 0.5
        assert cores.wait_policy(every_core + 1) == "PASSIVE"


@pytest.mark.parametrize(("idle", "policy"), [(2.0, None), (1.8, None), (1.5, "PASSIVE"), (0.0, "PASSIVE")])
def test_two_threads_spin_where_two_cores_are_free(
    monkeypatch: pytest.MonkeyPatch, idle: float, policy: str | None
) -> None:
    monkeypatch.setattr(cores, "idle_cores", lambda _: idle)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert cores.wait_policy(2) == policy
    assert cores.wait_policy(1) is None  # one thread waits for nobody


def test_idle_time_is_read_in_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    ticks = iter(["cpu 5 0 5 100 20 0", "cpu 9 0 9 240 30 0"])
    monkeypatch.setattr(Path, "read_text", lambda _: next(ticks) + "\ncpu0 1")
    monkeypatch.setattr(cores.time, "sleep", lambda _: None)
    assert cores.idle_cores(1.0, stat) == pytest.approx(150 / os.sysconf("SC_CLK_TCK"))


def test_a_system_that_does_not_say_is_taken_as_busy(tmp_path: Path) -> None:
    assert cores.idle_cores(0.0, tmp_path / "none") == 0.0
