"""Files appear whole or not at all: write beside, flush, rename, flush the folder."""

import os
import uuid
from pathlib import Path


def fsync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(root: Path) -> None:
    """Flush every file and folder below `root`, so that a following rename publishes complete content."""
    for path in [*root.rglob("*"), root]:
        fsync(path)


def replace(fresh: Path, path: Path) -> None:
    """Give a finished file its name, durably: its bytes first, then the name that leads to them."""
    fsync(fresh)
    os.replace(fresh, path)
    fsync(path.parent)


def write_atomic(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace `path` by `text` in one rename. Without `durable` a power cut may lose the newest version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        fresh.write_text(text, encoding="utf-8")
        if durable:
            replace(fresh, path)
        else:
            os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
