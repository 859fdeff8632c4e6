"""One result, made at most once: look it up, else lock its key, run the stage, check, digest and commit.

Knows neither flows nor Prefect. Whatever fails, the store holds either the whole result or nothing of it, and
the work folder keeps what a next attempt can go on from.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from stages.declaration import Declaration, Kind, StageParams
from stages.errors import PosttrainError, UsageError
from stages.spec import Event, EventKind, Runtime, StageSpec
from tasks.contracts.agreement import check_inputs
from tasks.process.attempt import StageFailed, run_attempt
from tasks.store.keys import params_of, stage_key
from tasks.store.lock import Owner, held_by, locked
from tasks.store.manifest import InputRecord, Manifest, OutputRecord, Outputs, Provenance
from tasks.store.objects import Store, file_records
from tasks.store.work import Attempt, Work

OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Request:
    """What a node of a flow asks for. `forced` asks for it anew, once per run."""

    node: str
    declaration: Declaration
    params: StageParams
    inputs: Outputs
    runtime: Runtime
    provenance: Provenance
    forced: bool = False

    def __post_init__(self) -> None:
        check_wiring(self.node, self.declaration, self.inputs)

    @property
    def stage(self) -> str:
        return self.declaration.name

    @cached_property
    def key(self) -> str:
        digests = {name: ref.digest for name, ref in self.inputs.items()}
        return stage_key(self.declaration, self.params, digests)

    def accepts(self, found: Manifest | None) -> bool:
        """Whether an existing result answers this request; a forced one only if this very run made it."""
        if found is None:
            return False
        made_now = found.provenance.run_id == self.provenance.run_id and found.provenance.node == self.node
        return made_now or not self.forced


@dataclass(frozen=True)
class Result:
    manifest: Manifest
    reused: bool


def check_wiring(node: str, declaration: Declaration, inputs: Outputs) -> None:
    """Raises UsageError unless exactly the declared inputs are given, each of its kind and contract."""
    if unknown := sorted(inputs.keys() - declaration.inputs.keys()):
        known = ", ".join(declaration.inputs) or "none"
        raise UsageError(f"{node}: stage {declaration.name} takes no input {unknown[0]!r}; it takes {known}")
    for name, artefact in declaration.inputs.items():
        if name not in inputs:
            if name not in declaration.optional:
                raise UsageError(f"{node}: stage {declaration.name} needs the input {name!r}")
            continue
        ref = inputs[name]
        if (ref.kind, ref.contract) != (artefact.kind, artefact.contract):
            raise UsageError(
                f"{node}: input {name} must be {_described(artefact.kind, artefact.contract)}, "
                f"not {_described(ref.kind, ref.contract)} of {ref.stage}"
            )


def _described(kind: Kind, contract: str | None) -> str:
    return f"a {kind} under {contract}" if contract else f"a {kind}"


def execute(store: Store, request: Request, *, on_event: OnEvent, wait_s: float = 0.0) -> Result:
    """The result that the request asks for, reused or made now.

    Raises StageBusy when another process works on the same key for longer than `wait_s`, StageStopped when
    the stage stopped resumably, ContractBreach when its inputs disagree or its outputs break a contract,
    StageFailed otherwise.
    """
    found = store.lookup(request.stage, request.key)
    if found is not None and request.accepts(found):
        return Result(found, reused=True)
    owner = Owner.this_process(request.provenance.run_id, request.node)
    lock = store.lock(request.stage, request.key)
    if wait_s and (other := held_by(lock)):
        on_event(Event(kind=EventKind.NOTICE, text=f"{request.node} waits for {other}"))
    with locked(lock, owner, what=f"{request.node} (stage {request.stage})", wait_s=wait_s):
        found = store.lookup(request.stage, request.key)  # made by whom we waited for
        if found is not None and request.accepts(found):
            return Result(found, reused=True)
        with disk_full_explained(request.node, store.root):
            return Result(_make(store, request, on_event), reused=False)


def _make(store: Store, request: Request, on_event: OnEvent) -> Manifest:
    inputs = {name: store.path(ref) for name, ref in request.inputs.items()}
    check_inputs(request.declaration, request.node, inputs)
    work = Work(store.work(request.stage, request.key))
    attempt = work.begin(
        key=request.key,
        run_id=request.provenance.run_id,
        node=request.node,
        runtime=request.runtime,
        forced=request.forced,
        source_digest=request.provenance.source_digest,
        environment_digest=request.provenance.environment_digest,
    )
    for notice in work.notices:
        on_event(Event(kind=EventKind.NOTICE, text=notice))
    began = time.monotonic()
    with work.log.open("a") as log:
        log.write(f"--- {request.node}: attempt {attempt.n}, {attempt.started:%Y-%m-%d %H:%M:%S} UTC\n")
    spec = StageSpec(
        stage=request.stage,
        node=request.node,
        attempt=attempt.n,
        params=params_of(request.params),
        runtime=request.runtime,
        inputs=inputs,
        work=work.folder,
        out=work.out,
    )
    run_attempt(spec, work.log, on_event)
    outputs = _written(request, work)
    reports = _checked(store, request, work, inputs, outputs)
    manifest = _manifest(
        request, attempt, outputs, reports, attempt.seconds_before + time.monotonic() - began
    )
    store.commit(manifest, work.out, work.folder)
    return manifest


def _written(request: Request, work: Work) -> dict[str, Path]:
    """The folder of each declared output. Raises StageFailed if one is missing, unknown or not plain."""
    written = {path.name: path for path in work.out.iterdir()}
    declared = list(request.declaration.outputs)
    for name in declared:
        if name not in written or not any(written[name].iterdir()):
            raise StageFailed(f"{request.node} wrote nothing to its output {name!r}", work.log)
    if extra := sorted(written.keys() - set(declared)):
        raise StageFailed(f"{request.node} wrote {extra[0]!r}, which is none of its outputs", work.log)
    if links := [path for path in work.out.rglob("*") if path.is_symlink()]:
        raise StageFailed(f"{request.node} wrote a link, {links[0]}; outputs hold plain files", work.log)
    return {name: written[name] for name in declared}


def _checked(
    store: Store, request: Request, work: Work, inputs: dict[str, Path], outputs: dict[str, Path]
) -> dict[str, Any]:
    """The contract reports by output. Raises ContractBreach; the offending rows are then in quarantine."""
    from tasks.contracts.boundary import check_outputs  # great-expectations, slow to import

    return check_outputs(
        request.declaration,
        node=request.node,
        inputs=inputs,
        outputs=outputs,
        reports=work.reports,
        quarantine=store.quarantine / f"{request.stage}-{request.key[:16]}",
    )


def _manifest(
    request: Request, attempt: Attempt, outputs: dict[str, Path], reports: dict[str, Any], seconds: float
) -> Manifest:
    return Manifest(
        stage=request.stage,
        version=request.declaration.version,
        code=dict(request.declaration.foreign_code(request.params).versions),
        key=request.key,
        params=params_of(request.params),
        inputs={
            name: InputRecord(stage=ref.stage, key=ref.key, output=ref.output, digest=ref.digest)
            for name, ref in request.inputs.items()
        },
        outputs={name: _output_record(request, name, folder) for name, folder in outputs.items()},
        attempts=attempt.n,
        seconds=round(seconds, 3),
        started=attempt.first_started,
        ended=datetime.now(UTC),
        runtime=request.runtime.model_dump(mode="json"),
        provenance=request.provenance,
        reports=reports,
    )


def _output_record(request: Request, name: str, folder: Path) -> OutputRecord:
    from tasks.store.digest import digest

    artefact = request.declaration.outputs[name]
    return OutputRecord(
        kind=artefact.kind,
        contract=artefact.contract,
        digest=digest(artefact.kind, folder),
        files=file_records(folder),
        rows=_rows(folder) if artefact.kind is Kind.DATASET else None,
        facts=_facts(folder) if artefact.kind is Kind.CHECKPOINT else {},
    )


def _rows(folder: Path) -> int:
    from data_contracts import dataset

    return dataset.rows(folder)


def _facts(folder: Path) -> dict[str, Any]:
    from data_contracts import checkpoint

    return checkpoint.facts(folder).to_json()


class DiskFull(PosttrainError):
    """The store's disk has no room left; nothing was committed."""


@contextmanager
def disk_full_explained(node: str, root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DiskFull(
            f"{node}: no space left for {root}; nothing was committed. Free some and run again: finished "
            f"stages are reused and this one resumes from its last saved step"
        ) from error
