"""One owner per key: flock, which the kernel releases however its holder dies, and a record of the holder."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from stages.errors import PosttrainError

POLL_S = 0.05
PROBE_GRACE_S = 0.3  # a probe holds the lock for an instant; that must not look like an owner


class Owner(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    pid: int
    since: datetime
    run_id: str = ""
    node: str = ""

    @classmethod
    def this_process(cls, run_id: str = "", node: str = "") -> "Owner":
        return cls(
            host=socket.gethostname(), pid=os.getpid(), since=datetime.now(UTC), run_id=run_id, node=node
        )

    def __str__(self) -> str:
        what = f" (run {self.run_id}, node {self.node})" if self.run_id else ""
        return f"process {self.pid} on {self.host} since {self.since:%Y-%m-%d %H:%M:%S}{what}"


class StageBusy(PosttrainError):
    """Another live process works on the same key."""

    def __init__(self, what: str, owner: Owner | None) -> None:
        self.what = what
        self.owner = owner
        by = str(owner) if owner else "an unknown process"
        super().__init__(f"{what} is being worked on by {by}; wait for it, or stop it first")


@contextmanager
def locked(path: Path, owner: Owner, *, what: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold `path` exclusively. Raises StageBusy, naming the owner, if it is not free in `wait_s` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        deadline = time.monotonic() + max(wait_s, PROBE_GRACE_S)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StageBusy(what, _read_owner(path)) from None
                time.sleep(POLL_S)
        file.seek(0)
        file.truncate()
        file.write(owner.model_dump_json())
        file.flush()
        yield


def held_by(path: Path) -> Owner | None:
    """The live owner of `path`, or None when nobody holds it (whatever its record says)."""
    if not path.exists():
        return None
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_owner(path) or Owner(host="?", pid=0, since=datetime.now(UTC))
    return None


def _read_owner(path: Path) -> Owner | None:
    try:
        return Owner.model_validate(json.loads(path.read_text()))
    except ValueError:  # taken this instant, not yet signed
        return None
