"""What a run says while it works: bars on a terminal, sparse plain lines elsewhere.

Both tell node, step, rate and time left, and pass on what a stage wants to be read (a fallback, an alarm).
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flows.cli.console import err, say
from flows.cli.words import outcome, rate, seconds
from stages.spec import Event, EventKind
from tasks.progress import Reporter
from tasks.runs import NodeRecord, NodeState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

LINE_EVERY_S = 20.0
RATE_WINDOW = 0.9  # weight of the past in the running mean of the rate


@dataclass
class Pace:
    """Rate and time left of one node, from the steps it reports; a change of unit begins anew."""

    began: float = field(default_factory=time.monotonic)
    unit: str = "steps"
    step: int = 0
    total: int = 0
    rate: float | None = None  # units a second
    _at: float = 0.0

    def update(self, event: Event, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        unit, step = event.unit or self.unit, event.step or 0
        if unit == self.unit and step > self.step and self._at and now > self._at:
            fresh = (step - self.step) / (now - self._at)
            self.rate = fresh if self.rate is None else RATE_WINDOW * self.rate + (1 - RATE_WINDOW) * fresh
        elif unit != self.unit or step < self.step:
            self.rate = None
        self.unit, self.step, self.total, self._at = unit, step, event.total or self.total, now

    @property
    def left_s(self) -> float | None:
        return (self.total - self.step) / self.rate if self.rate and self.total else None

    def __str__(self) -> str:
        of = f"/{self.total}" if self.total else ""
        text = f"{self.unit} {self.step}{of}"
        if self.rate:
            text += f", {rate(self.rate)}"
        if self.left_s is not None:
            text += f", {seconds(self.left_s)} left"
        return text


class Display(Reporter, Protocol):
    """A reporter that holds the terminal while it is entered."""

    def __enter__(self) -> "Display": ...

    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None: ...


def display() -> Display:
    return Bars() if err().is_terminal else Lines()


def tell_stop(requests: int) -> None:
    """Written past all buffers: it is called in a signal handler, which may have interrupted a print."""
    text = "stopping at the next step boundary (again to kill)…" if requests == 1 else "killing the stage"
    os.write(2, f"\r{text}\n".encode())


class Lines:
    """One line when a node starts and ends, and one about every twenty seconds between."""

    def __init__(self, tell: Callable[[str], None] = say, every_s: float = LINE_EVERY_S) -> None:
        self._tell = tell
        self._every_s = every_s
        self._paces: dict[str, Pace] = {}
        self._told_at: dict[str, float] = {}

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def on_node(self, record: NodeRecord) -> None:
        if record.state is NodeState.RUNNING:
            self._paces[record.node] = Pace()
            self._told_at[record.node] = time.monotonic()
            return  # said at its first event, since it may turn out to be reused
        self._tell(f"{record.node}: {outcome(record)}")

    def on_event(self, node: str, event: Event) -> None:
        pace = self._paces.setdefault(node, Pace())
        match event.kind:
            case EventKind.STARTED:
                self._tell(f"{node}: started")
            case EventKind.NOTICE:
                self._tell(f"{node}: {event.text}")
            case EventKind.RESUMED:
                self._tell(f"{node}: {resumed(event)}")
                pace.update(event)
            case EventKind.PROGRESS:
                pace.update(event)
                if time.monotonic() - self._told_at.get(node, 0.0) >= self._every_s:
                    self._told_at[node] = time.monotonic()
                    self._tell(f"{node}: {pace}")

    def on_stop(self, requests: int) -> None:
        tell_stop(requests)

    def say(self, text: str) -> None:
        self._tell(text)


class Bars:
    """A bar for each node under way; finished nodes stay above as lines."""

    def __init__(self, console: "Console | None" = None) -> None:
        self._progress = _progress(console or err())
        self._bars: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            self._progress.remove_task(bar)
        self._bars.clear()
        self._progress.stop()

    def on_node(self, record: NodeRecord) -> None:
        if record.state is NodeState.RUNNING:
            self._paces[record.node] = Pace()
            self._bars[record.node] = self._progress.add_task(record.node, total=None, pace="")
            return
        if (bar := self._bars.pop(record.node, None)) is not None:
            self._progress.remove_task(bar)
        self.say(f"{record.node}: {outcome(record)}")

    def on_event(self, node: str, event: Event) -> None:
        if event.kind is EventKind.NOTICE:
            self.say(f"{node}: {event.text}")
        if event.kind is EventKind.RESUMED:
            self.say(f"{node}: {resumed(event)}")
        if event.kind in (EventKind.RESUMED, EventKind.PROGRESS) and node in self._bars:
            pace = self._paces[node]
            pace.update(event)
            self._progress.update(
                self._bars[node], completed=pace.step, total=pace.total or None, pace=str(pace)
            )

    def on_stop(self, requests: int) -> None:
        tell_stop(requests)

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False)


def resumed(event: Event) -> str:
    return f"goes on from {event.unit or 'step'} {event.step} of {event.total}"


def _progress(console: "Console") -> "Progress":
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", style="bold"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[pace]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
