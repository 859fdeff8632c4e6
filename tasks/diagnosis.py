"""Is this machine fit for a run? Each finding says what was looked at, what was seen, and what to do."""

import importlib.metadata
import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks import provenance
from tasks.servers import local
from tasks.store.home import Home
from tasks.store.lock import Owner, StageBusy, locked

NEEDED = ("prefect", "mlflow", "great-expectations", "pyarrow", "torch", "transformers", "sqlglot")
OPTIONAL = ("vllm", "megatron-core")
MIN_DISK_GB = 5.0
MIN_MEMORY_GB = 6.0
MIN_SQLITE = (3, 35, 0)


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True)

    level: Level
    what: str
    seen: str
    advice: str = ""


def diagnose(home: Home, cuda: bool) -> Iterator[Finding]:
    """Looks, changes nothing but the lock file of its own probe below the home folder."""
    yield _python()
    yield from _packages()
    yield _sqlite()
    yield _processors()
    yield _memory()
    yield Finding(
        level=Level.OK, what="CUDA", seen="there" if cuda else "none: profile cpu is the default here"
    )
    yield _home(home)
    yield _disk(home)
    yield _git()
    yield from _servers(home)


def _python() -> Finding:
    seen = f"{platform.python_version()} ({sys.executable})"
    fits = sys.version_info[:2] == (3, 11)
    return Finding(
        level=Level.OK if fits else Level.FAULT,
        what="Python",
        seen=seen,
        advice="" if fits else "use Python 3.11",
    )


def _packages() -> Iterator[Finding]:
    for name in (*NEEDED, *OPTIONAL):
        try:
            yield Finding(level=Level.OK, what=name, seen=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            if name in NEEDED:
                advice = "install the project: pip install -e ."
                yield Finding(level=Level.FAULT, what=name, seen="not installed", advice=advice)
            else:
                yield Finding(level=Level.NOTE, what=name, seen="not installed (an extra)")


def _sqlite() -> Finding:
    fits = sqlite3.sqlite_version_info >= MIN_SQLITE
    return Finding(
        level=Level.OK if fits else Level.FAULT,
        what="SQLite",
        seen=sqlite3.sqlite_version,
        advice="" if fits else "use a Python built against SQLite 3.35 or newer",
    )


def _processors() -> Finding:
    usable = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    busy = load > usable
    return Finding(
        level=Level.NOTE if busy else Level.OK,
        what="processors",
        seen=f"{usable}, load {load:.1f}",
        advice="other work competes: times will be longer than the plan says" if busy else "",
    )


def _memory() -> Finding:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) / 1e6
    fits = free >= MIN_MEMORY_GB
    return Finding(
        level=Level.OK if fits else Level.NOTE,
        what="memory",
        seen=f"{free:.1f} GB available",
        advice="" if fits else f"the cpu profile may need {MIN_MEMORY_GB:.0f} GB",
    )


def _home(home: Home) -> Finding:
    """A lock that two processes can hold at once would let them write the same result."""
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        probe = home.root / ".doctor.lock"
        with locked(probe, Owner.this_process(node="doctor"), what="the probe"):
            try:
                with locked(probe, Owner.this_process(node="doctor"), what="the probe"):
                    holds = False
            except StageBusy:
                holds = True
        probe.unlink()
    except OSError as error:
        advice = "set POSTTRAIN_HOME to a folder that you can write"
        return Finding(level=Level.FAULT, what="POSTTRAIN_HOME", seen=f"{home.root}: {error}", advice=advice)
    return Finding(
        level=Level.OK if holds else Level.FAULT,
        what="POSTTRAIN_HOME",
        seen=f"{home.root}, writable, locks {'hold' if holds else 'do not hold'}",
        advice="" if holds else "its file system has no locks: put it on a local disk",
    )


def _disk(home: Home) -> Finding:
    folder = next(path for path in (home.root, *home.root.parents) if path.exists())
    free = shutil.disk_usage(folder).free / 1e9
    fits = free >= MIN_DISK_GB
    return Finding(
        level=Level.OK if fits else Level.FAULT,
        what="disk",
        seen=f"{free:.1f} GB free",
        advice="" if fits else "make room, or see what `posttrain gc` would free",
    )


def _git() -> Finding:
    found = provenance.git()
    if found.commit is None:
        advice = "lineage will not name a commit: run from a git checkout"
        return Finding(level=Level.NOTE, what="git", seen="no commit", advice=advice)
    changes = ", with uncommitted changes" if found.dirty else ""
    return Finding(level=Level.OK, what="git", seen=f"{found.commit[:12]}{changes}")


def _servers(home: Home) -> Iterator[Finding]:
    from tasks.servers.child import answers

    if url := os.environ.get("PREFECT_API_URL"):
        there = answers(f"{url.rstrip('/')}/health")
        yield Finding(
            level=Level.OK if there else Level.FAULT,
            what="PREFECT_API_URL",
            seen=f"{url} {'answers' if there else 'does not answer'}",
            advice=""
            if there
            else "start it, or unset PREFECT_API_URL to have a private server for each run",
        )
    for name, title in local.TITLES.items():
        running = local.alive(home, name)
        seen = f"up at {running.url}" if running else "not up: `posttrain up` starts it for its UI"
        yield Finding(level=Level.OK, what=f"{title} server", seen=seen)
