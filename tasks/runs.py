"""The ledger of runs: `runs/<run id>/run.json` and one file per node, each replaced in one rename.

A file only says what its writer last knew; whether a run is alive is told by its lock, which the kernel
releases when the process dies.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from data_contracts.durable import write_atomic
from stages.errors import UsageError
from tasks.store.home import Home
from tasks.store.lock import Owner, held_by, locked
from tasks.store.objects import Store


class NodeState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    REUSED = "reused"
    COMPLETED = "completed"
    STOPPED = "stopped"  # at a step boundary, resumable
    FAILED = "failed"
    CRASHED = "crashed"  # never written: running by the file, but its lock is free


class RunState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    CRASHED = "crashed"  # never written, as above


class RunKind(StrEnum):
    FLOW = "flow"  # of a flow in the catalogue: `resume` and `--last` are about these
    MEASUREMENT = "measurement"  # one `posttrain evaluate`
    SCRIPT = "script"  # `stage` called outside of any flow


class NodeRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")

    node: str
    stage: str
    key: str | None = None
    digest: str | None = None  # of the main product: the output which the stage declares first
    outputs: dict[str, str] = Field(default_factory=dict)  # digest of each output
    state: NodeState = NodeState.WAITING
    attempts: int = 0
    seconds: float | None = None
    started: datetime | None = None
    ended: datetime | None = None
    step: int | None = None
    total: int | None = None
    unit: str | None = None
    resumed_from: int | None = None  # the step that its last attempt went on from
    message: str = ""
    notices: list[str] = Field(default_factory=list)  # what the user should read: fallbacks, alarms


class RunRecord(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    flow: str
    kind: RunKind = RunKind.FLOW
    state: RunState = RunState.RUNNING
    home: str
    recipe: dict[str, Any] = Field(default_factory=dict)  # resolved
    sources: dict[str, str] = Field(default_factory=dict)  # where each value of the recipe came from
    profile: str | None = None
    runtime: dict[str, Any] = Field(default_factory=dict)
    forced: list[str] = Field(default_factory=list)
    from_node: str | None = None
    argv: list[str] = Field(default_factory=list)
    git_commit: str | None = None
    git_dirty: bool | None = None
    flow_run_id: str | None = None
    started: datetime
    ended: datetime | None = None
    message: str = ""


def new_run_id(flow: str) -> str:
    return f"{flow}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Run:
    """One run's folder."""

    def __init__(self, home: Home, run_id: str) -> None:
        self.home = home
        self.id = run_id
        self.folder = home.runs / run_id

    # the run

    def record(self) -> RunRecord:
        return RunRecord.model_validate_json((self.folder / "run.json").read_bytes())

    def write(self, record: RunRecord) -> None:
        write_atomic(self.folder / "run.json", record.model_dump_json(indent=1))

    def close(self, state: RunState, message: str = "") -> None:
        ended = datetime.now(UTC)
        self.write(self.record().model_copy(update={"state": state, "ended": ended, "message": message}))

    def reopen(self) -> None:
        """The same run goes on (a resume, a retry by Prefect)."""
        fresh = {"state": RunState.RUNNING, "ended": None, "message": ""}
        self.write(self.record().model_copy(update=fresh))

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Hold the run's lock for as long as this process works on it. Raises StageBusy."""
        owner = Owner.this_process(self.id)
        with locked(self.folder / "lock", owner, what=f"run {self.id}"):
            yield

    def owner(self) -> Owner | None:
        """The process that works on this run now."""
        return held_by(self.folder / "lock")

    def state(self) -> RunState:
        """As recorded, or CRASHED when it says running and nobody works on it."""
        recorded = self.record().state
        dead = recorded is RunState.RUNNING and self.owner() is None
        return RunState.CRASHED if dead else recorded

    # its nodes

    def expect(self, nodes: list[NodeRecord]) -> None:
        """Lay down the nodes of the flow in their order, waiting; known ones are left as they are."""
        order = [record.node for record in nodes]
        write_atomic(self.folder / "order.txt", "".join(f"{node}\n" for node in order))
        for record in nodes:
            if self.node(record.node) is None:
                self.write_node(record)

    def write_node(self, record: NodeRecord, *, durable: bool = True) -> None:
        path = self.folder / "nodes" / f"{record.node}.json"
        write_atomic(path, record.model_dump_json(indent=1), durable=durable)

    def node(self, node: str) -> NodeRecord | None:
        try:
            return NodeRecord.model_validate_json((self.folder / "nodes" / f"{node}.json").read_bytes())
        except FileNotFoundError:
            return None

    def nodes(self) -> list[NodeRecord]:
        """As recorded, in the order of the flow; a node whose process is gone is CRASHED."""
        found = [
            NodeRecord.model_validate_json(file.read_bytes()) for file in self.folder.glob("nodes/[!.]*.json")
        ]
        order_file = self.folder / "order.txt"
        order = order_file.read_text().split() if order_file.exists() else []
        place = {node: index for index, node in enumerate(order)}
        late = datetime.max.replace(tzinfo=UTC)
        found.sort(key=lambda record: (place.get(record.node, len(place)), record.started or late))
        return [self._probed(record) for record in found]

    def _probed(self, record: NodeRecord) -> NodeRecord:
        if record.state is not NodeState.RUNNING or record.key is None:
            return record
        owner = held_by(Store(self.home).lock(record.stage, record.key))
        if owner is not None and owner.run_id == self.id:
            return record
        if owner is None and self.owner() is not None:  # between taking up the node and taking its lock
            return record
        return record.model_copy(update={"state": NodeState.CRASHED, "message": "its process is gone"})

    def log(self, record: NodeRecord) -> Path | None:
        """The log of a node: of the attempt under way, or of the committed result."""
        if record.key is None:
            return None
        store = Store(self.home)
        places = [
            store.work(record.stage, record.key) / "log.txt",
            store.folder(record.stage, record.key) / "log.txt",
        ]
        return next((place for place in places if place.exists()), None)


def create(home: Home, record: RunRecord) -> Run:
    run = Run(home, record.id)
    run.folder.mkdir(parents=True)
    run.write(record)
    return run


def every(home: Home) -> list[Run]:
    """All runs, oldest first."""
    found = [Run(home, file.parent.name) for file in home.runs.glob("*/run.json")]
    return sorted(found, key=lambda run: (run.record().started, run.id))


def of_flows(home: Home) -> list[Run]:
    """The runs of flows, oldest first: measurements and scripts are left out."""
    return [run for run in every(home) if run.record().kind is RunKind.FLOW]


def latest(home: Home) -> Run:
    """The newest run of a flow. Raises UsageError when this home has none."""
    runs = of_flows(home)
    if not runs:
        raise UsageError(f"no run of a flow in {home.root}; start one with `posttrain run`")
    return runs[-1]


def load(home: Home, run_id: str) -> Run:
    """By its id, or by a beginning of it that fits one run only. Raises UsageError."""
    fits = [run for run in every(home) if run.id == run_id] or [
        run for run in every(home) if run.id.startswith(run_id)
    ]
    match fits:
        case [run]:
            return run
        case []:
            raise UsageError(f"no run {run_id!r} in {home.root}; `posttrain status` lists the runs")
    raise UsageError(
        f"{run_id!r} fits {len(fits)} runs: {', '.join(run.id for run in fits)}; write more of it"
    )
