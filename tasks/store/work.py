"""The work folder of an unfinished result: what an attempt began with, and whether the next may go on.

    work/<stage>/<key>/{attempt.json, spec.json, log.txt, metrics.jsonl, steps/, out/, ...}

An attempt resumes only under the runtime that the work began with, since threads and batch sizes can change
the last bits of a float sum and the verifier's deadline what is unscorable. What a forced rerun began is
resumed only within the run that forced it.
"""

import os
import shutil
import socket
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from data_contracts.durable import write_atomic
from stages.spec import Runtime

# Fields of the runtime that cannot change what is computed, only when or how fast.
HARMLESS = frozenset({"save_every_s", "verifier_workers"})


class Attempt(BaseModel):
    """attempt.json: who works on this key, the how-manieth time, and under what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    key: str
    pid: int
    host: str
    started: datetime
    first_started: datetime
    run_id: str
    node: str
    runtime: Runtime
    forced: bool = False
    source_digest: str = ""
    environment_digest: str = ""
    seconds_before: float = 0.0  # of earlier attempts


class Work:
    """`begin` starts an attempt in the folder; `notices` then says what the user should know about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notices: list[str] = []

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def last_attempt(self) -> Attempt | None:
        try:
            return Attempt.model_validate_json((self.folder / "attempt.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def saved_step(self) -> int | None:
        """The step that an attempt would go on from."""
        steps = [int(path.name.removeprefix("step-")) for path in self.folder.glob("steps/step-*")]
        return max(steps, default=None)

    def begin(
        self,
        *,
        key: str,
        run_id: str,
        node: str,
        runtime: Runtime,
        forced: bool = False,
        source_digest: str = "",
        environment_digest: str = "",
    ) -> Attempt:
        """Record a new attempt, after removing what it may not go on from. Call with the key's lock held."""
        last = self.last_attempt()
        if last is None and self.folder.exists():
            shutil.rmtree(self.folder)  # made by nothing that we know
        if last is not None and (why := self.restart_because(last, run_id, runtime, forced)):
            self.notices.append(f"{node} starts over: {why}")
            shutil.rmtree(self.folder)
            last = None
        self.folder.mkdir(parents=True, exist_ok=True)
        for stale in (self.out, self.folder / "object", self.reports):
            if stale.exists():
                shutil.rmtree(stale)
        self.out.mkdir()
        now = datetime.now(UTC)
        attempt = Attempt(
            n=last.n + 1 if last else 1,
            key=key,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=now,
            first_started=last.first_started if last else now,
            run_id=run_id,
            node=node,
            runtime=runtime,
            forced=forced,
            source_digest=source_digest,
            environment_digest=environment_digest,
            seconds_before=last.seconds_before + self._lasted(last) if last else 0.0,
        )
        if last is not None:
            self._warn_of_changes(last, attempt)
        write_atomic(self.folder / "attempt.json", attempt.model_dump_json(indent=1))
        return attempt

    def restart_because(self, last: Attempt, run_id: str, runtime: Runtime, forced: bool) -> str:
        """Why a next attempt may not go on from `last`; empty when it may."""
        if differing := runtime_differences(last.runtime, runtime):
            return f"its work began under another runtime ({differing})"
        if forced and not (last.forced and last.run_id == run_id):
            return "it was forced"
        return ""

    def _warn_of_changes(self, last: Attempt, now: Attempt) -> None:
        changed = [
            what
            for what, before, after in (
                ("the sources", last.source_digest, now.source_digest),
                ("the installed packages", last.environment_digest, now.environment_digest),
            )
            if before != after
        ]
        if changed and self.saved_step() is not None:
            self.notices.append(
                f"{now.node} resumes although {' and '.join(changed)} changed since its attempt {last.n}; "
                f"use --force {now.node} to start over"
            )

    def _lasted(self, attempt: Attempt) -> float:
        """Seconds that a dead attempt worked, by the last thing that it wrote."""
        written = [
            path.stat().st_mtime for path in (self.log, self.folder / "metrics.jsonl") if path.exists()
        ]
        written += [path.stat().st_mtime for path in self.folder.glob("steps/step-*")]
        return max(0.0, max(written, default=0.0) - attempt.started.timestamp())


def runtime_differences(began: Runtime, now: Runtime) -> str:
    """The fields that can change results and differ, as "threads 2 -> 1"; empty when none does."""
    return ", ".join(
        f"{name} {getattr(began, name)} -> {getattr(now, name)}"
        for name in Runtime.model_fields
        if name not in HARMLESS and getattr(began, name) != getattr(now, name)
    )
