"""The session that makes results: each node becomes a Prefect task, its fate goes to the ledger of runs."""

import hashlib
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from data_contracts.breach import ContractBreach
from stages.declaration import StageParams
from stages.errors import PosttrainError, StageStopped, UsageError
from stages.spec import Event, EventKind, Runtime
from tasks import provenance, runs
from tasks.changes import changes, missing_before
from tasks.execute import Request, Result, execute
from tasks.flow_run import FlowRun, flow_run
from tasks.prefect_task import through_prefect
from tasks.process import signals
from tasks.progress import LogReporter, Reporter
from tasks.runs import NodeRecord, NodeState, Run, RunKind, RunRecord, RunState
from tasks.session import Selection, Session
from tasks.store.home import Home
from tasks.store.keys import canonical
from tasks.store.manifest import Outputs
from tasks.store.work import Work

LEDGER_EVERY_S = 1.0


class RunSession(Session):
    """Use as `with session.active(): flow(recipe)`."""

    def __init__(self, run: Run, *, reporter: Reporter | None = None, wait_s: float = 0.0) -> None:
        """`run` is a new one (`start`) or one to go on with. `wait_s`: how long to wait for a busy stage."""
        record = run.record()
        super().__init__(
            run.home,
            runtime=Runtime.model_validate(record.runtime),
            flow=record.flow,
            run_id=run.id,
            selection=Selection(frozenset(record.forced), record.from_node),
            recipe_digest=recipe_digest(record.recipe),
            argv=record.argv,
        )
        self.run = run
        self.reporter: Reporter = reporter or LogReporter()
        self.wait_s = wait_s
        self.under_worker = False
        self._flow_run: FlowRun | None = None
        self._pending: dict[str, Request] = {}
        self._noted_at = 0.0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Own the run: `stage` asks this session, signals stop it, and the ledger gets the end that it takes.

        Raises StageStopped for whatever ends it after a stop was asked for, StageBusy if the run is alive.
        """
        with self.run.alive(), self.answers(), signals.forwarded(self.reporter.on_stop):
            self.run.reopen()
            try:
                yield
                self.selection.check()
            except BaseException as error:
                stopped = isinstance(error, StageStopped | KeyboardInterrupt) or signals.stop_asked()
                self.run.close(RunState.STOPPED if stopped else RunState.FAILED, _sentence(error))
                if stopped and not isinstance(error, StageStopped):
                    raise StageStopped(f"run {self.run_id} was interrupted; it can be resumed") from error
                raise
            self.run.close(RunState.COMPLETED)

    def stage(self, node: str, params: StageParams, inputs: Outputs) -> Outputs:
        found = flow_run()
        if found is not None and found != self._flow_run:
            self._within(found)
        return super().stage(node, params, inputs)

    def answer(self, request: Request) -> Outputs:
        if self.selection.must_exist(request.node):
            self._require(request)
        self._pending[request.node] = request
        return through_prefect(self.perform, request)

    def _within(self, found: FlowRun) -> None:
        """The flow run that the nodes belong to, known when the first one asks; or Prefect retries it."""
        if self._flow_run is not None:
            self.begin_again()
        self._flow_run = found
        self.flow_run_id = found.id
        self.run.write(self.run.record().model_copy(update={"flow_run_id": found.id}))

    def _require(self, request: Request) -> None:
        if not request.accepts(self.store.lookup(request.stage, request.key)):
            last = self.store.latest(request.stage, request.node)
            why = "; ".join(changes(last, request)) if last else "never run before"
            raise UsageError(missing_before(self.selection.from_node or "", request.node, why))

    def perform(self, node: str) -> Result:
        """Make or reuse the node's result and keep the ledger; called within the Prefect task."""
        try:
            with signals.forwarded(self.reporter.on_stop):
                return self._perform(self._pending[node])
        except StageStopped:
            if self.under_worker:  # we kept the signal from Prefect, which reschedules or cancels by it
                signal.raise_signal(signal.SIGTERM)
            raise

    def _perform(self, request: Request) -> Result:
        record = NodeRecord(
            node=request.node,
            stage=request.stage,
            key=request.key,
            state=NodeState.RUNNING,
            started=datetime.now(UTC),
        )
        began = time.monotonic()
        try:
            if signals.stop_asked():
                raise StageStopped(f"stopped before {request.node}")
            if not request.accepts(self.store.lookup(request.stage, request.key)):
                self._note(record)
            result = execute(
                self.store,
                request,
                on_event=lambda event: self._heard(record, request, event),
                wait_s=self.wait_s,
            )
        except BaseException as error:
            stopped = isinstance(error, StageStopped) or signals.stop_asked()
            record.state = NodeState.STOPPED if stopped else NodeState.FAILED
            record.message = _sentence(error)
            record.attempts = self._attempts(request)
            record.seconds = round(time.monotonic() - began, 3)
            raise
        else:
            made = result.manifest
            record.state = NodeState.REUSED if result.reused else NodeState.COMPLETED
            record.seconds = 0.0 if result.reused else made.seconds
            record.attempts = made.attempts
            record.digest = made.digest
            record.outputs = {name: output.digest for name, output in made.outputs.items()}
        finally:
            record.ended = datetime.now(UTC)
            self._note(record)
        return result

    def _attempts(self, request: Request) -> int:
        last = Work(self.store.work(request.stage, request.key)).last_attempt()
        return last.n if last else 0

    def _note(self, record: NodeRecord) -> None:
        self.run.write_node(record)
        self.reporter.on_node(record)

    def _heard(self, record: NodeRecord, request: Request, event: Event) -> None:
        match event.kind:
            case EventKind.STARTED:
                record.attempts = self._attempts(request)
            case EventKind.PROGRESS | EventKind.RESUMED:
                record.step, record.total, record.unit = event.step, event.total, event.unit
                if event.kind is EventKind.RESUMED:
                    record.resumed_from = event.step
            case EventKind.NOTICE if event.text:
                record.notices.append(event.text)
        now = time.monotonic()
        if now - self._noted_at >= LEDGER_EVERY_S or event.kind in (EventKind.STARTED, EventKind.NOTICE):
            self._noted_at = now
            self.run.write_node(record, durable=False)
        self.reporter.on_event(record.node, event)


def start(
    home: Home,
    flow: str,
    *,
    runtime: Runtime,
    kind: RunKind = RunKind.FLOW,
    recipe: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
    profile: str | None = None,
    forced: Sequence[str] = (),
    from_node: str | None = None,
    flow_run_id: str | None = None,
) -> Run:
    """A new run in the ledger; hand it to RunSession. `recipe` is resolved, as JSON types."""
    git = provenance.git()
    record = RunRecord(
        id=runs.new_run_id(flow),
        flow=flow,
        kind=kind,
        home=str(home.root),
        recipe=dict(recipe or {}),
        sources=dict(sources or {}),
        profile=profile,
        runtime=runtime.model_dump(mode="json"),
        forced=sorted(forced),
        from_node=from_node,
        argv=sys.argv,
        git_commit=git.commit,
        git_dirty=git.dirty,
        flow_run_id=flow_run_id,
        started=datetime.now(UTC),
    )
    return runs.create(home, record)


def recipe_digest(recipe: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical(recipe)).hexdigest()}"


def _sentence(error: BaseException) -> str:
    if isinstance(error, PosttrainError | ContractBreach):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
