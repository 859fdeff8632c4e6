"""What the store holds that nothing needs: superseded results, results of no recorded run, abandoned work.

A result is needed while a run in the ledger names it, or something needed was made from it. Work is needed
while a run names it, because that run can resume from it. What is locked is left alone.
"""

import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks import runs
from tasks.lineage.project import in_order, needed_by
from tasks.store.home import Home
from tasks.store.lock import Owner, StageBusy, held_by, locked
from tasks.store.objects import SUPERSEDED, Store


class Why(StrEnum):
    SUPERSEDED = "superseded by a forced rerun"
    UNUSED = "no recorded run uses it"
    ABANDONED = "unfinished work of no recorded run"


class Piece(BaseModel):
    """Something that can go. `bytes` of content."""

    model_config = ConfigDict(frozen=True)

    path: Path
    stage: str
    key: str
    why: Why
    bytes: int


def garbage(home: Home) -> Iterator[Piece]:
    """Everything that nothing needs and nobody holds."""
    store = Store(home)
    named = {(node.stage, node.key) for run in runs.every(home) for node in run.nodes() if node.key}
    manifests = in_order(store.manifests())
    needed = {manifest.key for manifest in needed_by(manifests, {key for _, key in named})}
    for folder in sorted(store.root.glob("objects/*/*")):
        key, old, _ = folder.name.partition(SUPERSEDED)
        if old or key not in needed:
            yield from _piece(store, folder, key, Why.SUPERSEDED if old else Why.UNUSED)
    for folder in sorted(store.root.glob("work/*/*")):
        if (folder.parent.name, folder.name) not in named:
            yield from _piece(store, folder, folder.name, Why.ABANDONED)


def _piece(store: Store, folder: Path, key: str, why: Why) -> Iterator[Piece]:
    stage = folder.parent.name
    if held_by(store.lock(stage, key)) is None:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        yield Piece(path=folder, stage=stage, key=key, why=why, bytes=size)


def remove(home: Home, piece: Piece) -> bool:
    """Remove it under its lock; False if somebody has taken the lock since."""
    store = Store(home)
    what = f"{piece.stage} {piece.key[:12]}"
    try:
        with locked(store.lock(piece.stage, piece.key), Owner.this_process(node="gc"), what=what):
            doomed = piece.path.with_name(f".gone-{piece.path.name}")
            piece.path.rename(doomed)  # nobody finds it half removed
            shutil.rmtree(doomed)
    except StageBusy:
        return False
    return True
