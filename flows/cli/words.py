"""How states, times and digests are worded and coloured, everywhere the same."""

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.runs import NodeRecord

COLOURS = {
    "waiting": "dim",
    "running": "cyan",
    "reused": "blue",
    "completed": "green",
    "stopped": "yellow",
    "failed": "red",
    "crashed": "red",
}
SHOWN_DIGITS = 10


def seconds(value: float | None) -> str:
    """12.3 s, 4 min 05 s, 2 h 03 min; nothing for None."""
    if value is None:
        return ""
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def local_time(moment: datetime) -> str:
    """The local time of a moment."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def short(digest: str | None) -> str:
    """The first digits of a key or digest, enough to tell it from its neighbours."""
    return (digest or "").removeprefix("sha256:")[:SHOWN_DIGITS]


def rate(per_second: float) -> str:
    """12.3/s, or 4.1 s each when slower than one a second."""
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{1 / per_second:.1f} s each"


def outcome(record: "NodeRecord") -> str:
    """How a node ended, with its time and digest; why it failed is told once, at the end of the run."""
    took = f" in {seconds(record.seconds)}" if record.state == "completed" else ""
    attempts = f" ({record.attempts} attempts)" if record.state == "completed" and record.attempts > 1 else ""
    digest = f" {short(record.digest)}" if record.digest else ""
    return f"{record.state}{took}{attempts}{digest}"
