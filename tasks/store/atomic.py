"""Files appear whole or not at all: write beside, flush, rename, flush the folder."""

import os
import uuid
from pathlib import Path


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace `path` by `text` in one rename. Without `durable` a power cut may lose the newest version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        fsync_folder(path.parent)
