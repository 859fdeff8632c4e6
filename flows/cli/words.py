"""How states, times and digests are worded and coloured, everywhere the same."""

from datetime import datetime

from tasks.duration import duration
from tasks.runs import NodeRecord, NodeState

COLOURS: dict[str, str] = {
    NodeState.WAITING: "dim",
    NodeState.RUNNING: "cyan",
    NodeState.REUSED: "blue",
    NodeState.COMPLETED: "green",
    NodeState.STOPPED: "yellow",
    NodeState.FAILED: "red",
    NodeState.CRASHED: "red",
}
SHOWN_DIGITS = 10


def seconds(value: float | None) -> str:
    """A duration; nothing for None."""
    return "" if value is None else duration(value)


def local_time(moment: datetime) -> str:
    """The local time of a moment."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def short(digest: str | None) -> str:
    """The first digits of a key or digest, enough to tell it from its neighbours."""
    return (digest or "").removeprefix("sha256:")[:SHOWN_DIGITS]


def rate(per_second: float) -> str:
    """12.3/s, or 4.1 s each when slower than one a second."""
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{1 / per_second:.1f} s each"


def outcome(record: NodeRecord) -> str:
    """How a node ended, with its time and digest; why it failed is told once, at the end of the run."""
    took = f" in {seconds(record.seconds)}" if record.state is NodeState.COMPLETED else ""
    attempts = (
        f" ({record.attempts} attempts)"
        if record.state is NodeState.COMPLETED and record.attempts > 1
        else ""
    )
    digest = f" {short(record.digest)}" if record.digest else ""
    return f"{record.state}{took}{attempts}{digest}"
