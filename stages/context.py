"""What a stage gets to work with: inputs, an output folder, a work folder that survives crashes, events.

A stage's loop is `for step in ctx.steps(total, state)`: it restores the last saved step, saves at step
boundaries, reports progress, and stops at a boundary when the process was asked to.
"""

import hashlib
import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from data_contracts.durable import fsync, fsync_tree
from stages.declaration import SeededParams, StageParams
from stages.errors import StageStopped
from stages.events import Events
from stages.spec import EventKind, Runtime, StageSpec

P = TypeVar("P", bound=StageParams, covariant=True)
KEPT_STEPS = 2


class Savable(Protocol):
    """Everything that a stage needs to go on from a step: weights, moments, cursors, generators, buffers."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


def _discard(folder: Path) -> None:
    """Remove a step's folder without its ever being seen half removed."""
    torn = folder.with_name(f".tmp-{uuid.uuid4().hex}")
    os.rename(folder, torn)
    shutil.rmtree(torn)


class StageContext(Generic[P]):
    def __init__(self, spec: StageSpec, params: P, events: Events | None = None) -> None:
        self.params = params
        self.runtime: Runtime = spec.runtime
        self.stage = spec.stage
        self.node = spec.node
        self.attempt = spec.attempt
        self.work = spec.work
        self._inputs = spec.inputs
        self._out = spec.out
        self._events = events or Events()
        self._stop_asked = False
        self._saved_at = time.monotonic()
        self._logged_before = self._metrics_file.stat().st_size if self._metrics_file.exists() else 0

    # inputs and outputs

    def input(self, name: str) -> Path:
        return self._inputs[name]

    def has_input(self, name: str) -> bool:
        return name in self._inputs

    def output(self, name: str) -> Path:
        """The folder of one declared output; the stage fills it, the parent checks and commits it."""
        folder = self.output_path(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def output_path(self, name: str) -> Path:
        """Where a declared output goes, not yet made: for writers that rename a finished folder there."""
        return self._out / name

    def seed(self, *labels: str | int) -> int:
        """A 63-bit seed for one purpose of this stage, whatever was drawn before or resumed from."""
        if not isinstance(self.params, SeededParams):
            raise TypeError(f"{type(self.params).__name__} has no seed: derive it from SeededParams")
        text = json.dumps([self.stage, self.params.seed, *labels])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    # steps

    def listen_for_stop(self) -> None:
        """SIGTERM asks the stage to stop at its next step boundary."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stop_asked", True))

    def latest_step(self) -> tuple[int, Path] | None:
        steps = sorted((self.work / "steps").glob("step-*"))
        return (int(steps[-1].name.removeprefix("step-")), steps[-1]) if steps else None

    @contextmanager
    def save_step(self, step: int) -> Iterator[Path]:
        """A folder to fill; it becomes `step`'s checkpoint by one rename, so a torn one is never seen."""
        root = self.work / "steps"
        root.mkdir(exist_ok=True)
        for torn in root.glob(".tmp-*"):
            shutil.rmtree(torn)
        folder = root / f".tmp-{uuid.uuid4().hex}"
        folder.mkdir()
        yield folder
        fsync_tree(folder)
        final = root / f"step-{step:09d}"
        if final.exists():  # the same step saved again
            _discard(final)
        os.rename(folder, final)
        fsync(root)
        for old in sorted(root.glob("step-*"))[:-KEPT_STEPS]:
            _discard(old)
        self._saved_at = time.monotonic()

    def steps(
        self, total: int, state: Savable, unit: str = "steps", save_each: bool = False
    ) -> Iterator[int]:
        """Yield the steps that are still to do, from the last saved one; see the module's docstring.

        A step is saved when `runtime.save_every_s` have passed, or always with `save_each`, for stages whose
        steps are long. Raises StageStopped at the first boundary after SIGTERM, with the step saved.
        """
        start = 0
        if latest := self.latest_step():
            start, folder = latest
            state.load(folder)
            self.emit(EventKind.RESUMED, step=start, total=total, unit=unit)
            self._forget_metrics_after(start)
        else:
            self._forget_metrics_after(-1)
        for step in range(start, total):
            yield step
            done = step + 1
            self.emit(EventKind.PROGRESS, step=done, total=total, unit=unit)
            due = save_each or time.monotonic() - self._saved_at >= self.runtime.save_every_s
            if (due or self._stop_asked) and done < total:
                with self.save_step(done) as folder:
                    state.save(folder)
            if self._stop_asked and done < total:
                raise StageStopped(f"{self.node} stopped after step {done} of {total}")

    # events

    def emit(
        self,
        kind: EventKind,
        *,
        step: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        text: str | None = None,
        scalars: dict[str, float | int | str | None] | None = None,
    ) -> None:
        self._events.emit(kind, step=step, total=total, unit=unit, text=text, scalars=scalars or {})

    def notice(self, text: str) -> None:
        """Something that the user should read: a fallback taken, an alarm, a count that surprises."""
        self.emit(EventKind.NOTICE, text=text)

    def log(self, step: int, **scalars: float | int | str | None) -> None:
        """Metrics of a finished step: an event, and a line of the `metrics.jsonl` that is committed."""
        with self._metrics_file.open("a") as file:
            file.write(json.dumps({"step": step, **scalars}) + "\n")
        self.emit(EventKind.METRICS, step=step, scalars=scalars)

    @property
    def _metrics_file(self) -> Path:
        return self.work / "metrics.jsonl"

    def _forget_metrics_after(self, step: int) -> None:
        """Steps that will be done again log again: drop earlier attempts' lines of them, and a torn line."""
        if not self._metrics_file.exists():
            return
        logged, kept = self._metrics_file.read_bytes(), []
        for line in logged[: self._logged_before].decode().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except json.JSONDecodeError:
                continue  # the line that was being written when the process died
        fresh = self._metrics_file.with_suffix(".tmp")
        fresh.write_bytes("".join(line + "\n" for line in kept).encode() + logged[self._logged_before :])
        os.replace(fresh, self._metrics_file)
