"""Carries out a run, new or resumed: plan, server, Prefect flow, lineage, report, the closing words."""

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.console import err, out, print_json, say
from flows.cli.plan import make_plan, summary
from flows.cli.progress import display
from stages.errors import PosttrainError, StageStopped

if TYPE_CHECKING:
    from flows.catalogue import FlowEntry
    from flows.recipe import Loaded
    from tasks.planning import PlanLine
    from tasks.runs import Run
    from tasks.servers.prefect import RunServer
    from tasks.session import Selection
    from tasks.store.home import Home

TELL_AFTER_S = 3.0
PREFECTS_OWN = {"prefect", "httpx"}  # packages whose errors a stage never raises


@dataclass(frozen=True)
class Job:
    """What is asked for. `run` is the one to go on with; None begins a new one.

    `wait_s`: how long to wait for a stage that another run is making.
    """

    entry: "FlowEntry"
    loaded: "Loaded[Any]"
    forced: frozenset[str] = frozenset()
    from_node: str | None = None
    run: "Run | None" = None
    wait_s: float = 0.0

    def selection(self) -> "Selection":
        """Fresh each time: a selection remembers which nodes it saw."""
        from tasks.session import Selection

        return Selection(self.forced, self.from_node)


def carry_out(home: "Home", prepare: Callable[[], Job], *, as_json: bool) -> None:
    """Run a job to its end and say what came of it.

    `prepare` is called while a private Prefect server comes up, since both take seconds. Raises what ended
    the run; StageStopped when it can be resumed.
    """
    with _server(home) as server:
        from tasks.planning import Action

        job = prepare()
        lines = make_plan(home, job.entry, job.loaded, job.selection())
        _await(server, nothing_to_do=all(line.action is Action.REUSE for line in lines))
        run = _ledger(home, job, lines)
        (err() if as_json else out()).print(f"run {run.id}: {summary(lines)}", markup=False)
        with _telling_how_to_resume(run):
            _through_prefect(run, job)
    _close(run, as_json=as_json)


@contextlib.contextmanager
def _server(home: "Home") -> "Iterator[RunServer]":
    from tasks.servers.prefect import for_run

    server = for_run(home)
    try:
        yield server
    finally:
        server.stop()


def _await(server: "RunServer", *, nothing_to_do: bool) -> None:
    """Wait for the server. A run that ends at once uses the time to import what its end needs."""
    from tasks.lineage.project import preload

    began, told = time.monotonic(), False
    if nothing_to_do:
        preload()

    def meanwhile() -> None:
        nonlocal told
        if not told and time.monotonic() - began > TELL_AFTER_S:
            told = True
            say("waiting for Prefect's server (its first start in a home takes longest)")

    server.wait(meanwhile)


def _ledger(home: "Home", job: Job, lines: "list[PlanLine]") -> "Run":
    """The run's entry with all nodes of the flow waiting."""
    from tasks.run_session import start
    from tasks.runs import NodeRecord

    run = job.run or start(
        home,
        job.entry.name,
        runtime=job.loaded.recipe.runtime,
        recipe=job.loaded.recipe.model_dump(mode="json"),
        sources=job.loaded.sources,
        profile=job.loaded.profile,
        forced=sorted(job.forced),
        from_node=job.from_node,
    )
    run.expect([NodeRecord(node=line.node, stage=line.stage) for line in lines])
    return run


def _through_prefect(run: "Run", job: Job) -> None:
    from tasks.run_session import RunSession

    with display() as shown, RunSession(run, reporter=shown, wait_s=job.wait_s).active():
        job.entry.flow(job.loaded.recipe)


@contextlib.contextmanager
def _telling_how_to_resume(run: "Run") -> Iterator[None]:
    """After a stop or a failure: what to type to go on. A stop is not made to wait for MLflow."""
    from tasks.lineage.project import sync_quietly

    try:
        yield
    except StageStopped as stopped:
        raise StageStopped(f"{stopped}: go on with `posttrain resume {run.id}` (or --last)") from stopped
    except Exception as failure:
        say(f"run {run.id} failed; when the cause is removed, go on with `posttrain resume {run.id}`")
        sync_quietly(run.home, run.id)  # what is finished; what is left undone a later sync completes
        if type(failure).__module__.partition(".")[0] in PREFECTS_OWN:
            from tasks.servers.child import ServerFailed

            raise ServerFailed(
                f"Prefect's server does not serve this run any more ({type(failure).__name__}: {failure}); "
                "what is finished is stored"
            ) from failure
        raise


def _close(run: "Run", *, as_json: bool) -> None:
    """Lineage and report are views of what is stored: their failure is told, it does not fail the run."""
    from tasks.lineage.project import sync_quietly

    if undone := sync_quietly(run.home, run.id):
        say(undone)
    report = _report(run)
    if as_json:
        _print_json(run, report)
    else:
        _closing_words(run, report)


def _report(run: "Run") -> Path | None:
    try:
        from tasks.report import write

        return write(run.home, run.id)
    except PosttrainError as error:
        say(f"no report was written: {error}")
    return None


def _print_json(run: "Run", report: Path | None) -> None:
    from flows.cli.results import results
    from flows.cli.status import run_as_json
    from tasks.report.material import Material

    found = results(Material(run.home, run.id))
    print_json({**run_as_json(run), **found, "report": str(report) if report else None})


def _closing_words(run: "Run", report: Path | None) -> None:
    from flows.cli.results import tables, verdict_lines
    from tasks.lineage.resolve import audit_target
    from tasks.report.material import Material
    from tasks.runs import NodeState

    material = Material(run.home, run.id)
    nodes = material.nodes
    reused = [node.node for node in nodes if node.state is NodeState.REUSED]
    if reused:
        everything = len(reused) == len(nodes)
        out().print(f"reused: {'every node' if everything else ', '.join(reused)}", markup=False)
    for table in tables(material.summaries):
        out().print()
        out().print(table)
    out().print()
    for line in verdict_lines(material.decision):
        out().print(line, markup=False)
    if report:
        out().print(f"report   {report}", markup=False)
    target = shlex.quote(audit_target(run.home, run.id))
    out().print(f"lineage  posttrain lineage audit {target} --verify", markup=False)
    out().print("UIs      posttrain up", markup=False)
