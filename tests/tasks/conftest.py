"""Homes, runs and real processes for the tests of `tasks`; the stages are those of a user's package."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

USER_PACKAGES = Path(__file__).parents[1] / "user"
PROJECT = Path(__file__).parents[2]
sys.path[:0] = [str(USER_PACKAGES)]

from toy_stages.flow import RUNTIME, two_counters  # noqa: E402

from stages.spec import Event  # noqa: E402  (after the path is set)
from tasks.planning import PlanLine, PlanningSession, plan  # noqa: E402
from tasks.run_session import RunSession, start  # noqa: E402
from tasks.runs import NodeRecord, Run  # noqa: E402
from tasks.session import Selection  # noqa: E402
from tasks.store.home import Home  # noqa: E402


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class Heard:
    """A reporter that keeps what it hears."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.events: list[tuple[str, Event]] = []

    def on_node(self, record: NodeRecord) -> None:
        self.states.append((record.node, record.state))

    def on_event(self, node: str, event: Event) -> None:
        self.events.append((node, event))

    def on_stop(self, requests: int) -> None: ...

    def steps(self, node: str) -> list[int]:
        """The steps that the node's process worked through."""
        return [event.step or 0 for name, event in self.events if name == node and event.kind == "progress"]

    def notices(self) -> list[str]:
        return [event.text or "" for _, event in self.events if event.kind == "notice"]


class Runs:
    """Runs flows of toy stages in this process."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.heard = Heard()

    def go(
        self, flow: Callable[[], object] = two_counters, run: Run | None = None, **settings: object
    ) -> Run:
        wait_s = float(str(settings.pop("wait_s", 0.0)))
        settings.setdefault("runtime", RUNTIME)
        run = run or start(self.home, "toy", **settings)  # type: ignore[arg-type]
        self.heard = Heard()
        session = RunSession(run, reporter=self.heard, wait_s=wait_s)
        with session.active():
            flow()
        return run

    def states(self, run: Run) -> dict[str, str]:
        return {record.node: str(record.state) for record in run.nodes()}

    def digests(self, run: Run) -> dict[str, dict[str, str]]:
        return {record.node: record.outputs for record in run.nodes()}

    def plan(
        self, flow: Callable[[], object] = two_counters, run_id: str = "", **selection: object
    ) -> dict[str, PlanLine]:
        runtime = selection.pop("runtime", RUNTIME)
        chosen = Selection(**selection)  # type: ignore[arg-type]
        session = PlanningSession(self.home, runtime=runtime, flow="toy", run_id=run_id, selection=chosen)
        return {line.node: line for line in plan(session, flow)}


@pytest.fixture
def toys(home: Home) -> Runs:
    return Runs(home)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs in another home, kept for the whole module."""
    return Runs(Home(tmp_path_factory.mktemp("elsewhere")))


@pytest.fixture
def program(home: Home) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the toy flow as a program; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "toy_stages.flow", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={
                **os.environ,
                "PYTHONPATH": f"{PROJECT}{os.pathsep}{USER_PACKAGES}",
                "POSTTRAIN_HOME": str(home.root),
                **environment,
            },
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits for a condition, patiently: the machine may be busy."""

    def wait(condition: Callable[[], object], patience_s: float = 30.0) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.02)

    return wait


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process still works; one that only waits to be reaped does not."""

    def look(pid: int) -> bool:
        try:
            return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False

    return look
