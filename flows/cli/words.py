"""How states, times and digests are worded and coloured, everywhere the same."""

from datetime import datetime

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
