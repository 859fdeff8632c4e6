"""The content-addressed store: results are immutable and appear by one rename.

    objects/<stage>/<key>/{manifest.json, outputs/<name>/..., metrics.jsonl, log.txt, reports/}
    work/<stage>/<key>/       an unfinished attempt (tasks.store.work); survives crashes
    locks/<stage>-<key>.lock  one owner per key (tasks.store.lock)

No folder without a readable manifest can come to a final name: the manifest is flushed before the rename.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from data_contracts.durable import fsync, fsync_tree, write_atomic
from stages.errors import PosttrainError
from tasks.store.home import Home
from tasks.store.manifest import FileRecord, Manifest, Ref

MANIFEST = "manifest.json"
SUPERSEDED = ".old-"  # a forced rerun's predecessor, until gc
KEPT_BESIDE_OUTPUTS = ("metrics.jsonl", "log.txt", "reports")


class StoreDamaged(PosttrainError):
    """Something in the store is not what posttrain wrote there."""


class Store:
    def __init__(self, home: Home) -> None:
        self.root = home.store

    # where things are

    def folder(self, stage: str, key: str) -> Path:
        return self.root / "objects" / stage / key

    def output(self, stage: str, key: str, output: str) -> Path:
        """Where an output lies, or would lie."""
        return self.folder(stage, key) / "outputs" / output

    def path(self, ref: Ref) -> Path:
        """The folder of one output. Raises StoreDamaged if it is not there (any more)."""
        folder = self.output(ref.stage, ref.key, ref.output)
        if not folder.is_dir():
            raise StoreDamaged(
                f"{ref.stage} {ref.output} {ref.digest[:19]} is not in the store: {folder} is missing"
            )
        return folder

    def work(self, stage: str, key: str) -> Path:
        return self.root / "work" / stage / key

    def lock(self, stage: str, key: str) -> Path:
        return self.root / "locks" / f"{stage}-{key}.lock"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    # what is there

    def lookup(self, stage: str, key: str) -> Manifest | None:
        """The result under this key, or None. Raises StoreDamaged for a manifest that does not parse."""
        file = self.folder(stage, key) / MANIFEST
        try:
            return Manifest.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise StoreDamaged(
                f"{file} is not a manifest; move its folder away and run again: {error}"
            ) from error

    def manifests(self) -> Iterator[Manifest]:
        """Every current result; superseded ones are left out."""
        for file in sorted(self.root.glob(f"objects/*/*/{MANIFEST}")):
            if SUPERSEDED not in file.parent.name:
                found = self.lookup(file.parent.parent.name, file.parent.name)
                if found is not None:
                    yield found

    def latest(self, stage: str, node: str) -> Manifest | None:
        """The most recent result of this stage at this node of any flow, whatever its key."""
        own = [found for found in self.manifests() if found.stage == stage and found.provenance.node == node]
        return max(own, key=lambda found: found.ended, default=None)

    # how things get there

    def commit(self, manifest: Manifest, outputs: Path, work: Path) -> Path:
        """Publish `outputs` (a folder below `work`) under the manifest's key and drop `work`.

        Whatever happens before the rename leaves the store as it was. A result that was there is kept aside
        as superseded. Returns the object's folder.
        """
        staged = work / "object"
        if staged.exists():
            shutil.rmtree(staged)
        staged.mkdir()
        os.rename(outputs, staged / "outputs")
        for name in KEPT_BESIDE_OUTPUTS:
            source = work / name
            if source.is_dir():
                shutil.copytree(source, staged / name)
            elif source.exists():
                shutil.copy2(source, staged / name)
        write_atomic(staged / MANIFEST, manifest.model_dump_json(indent=1))
        fsync_tree(staged)

        final = self.folder(manifest.stage, manifest.key)
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():
            os.rename(final, final.with_name(f"{final.name}{SUPERSEDED}{uuid.uuid4().hex[:8]}"))
        os.rename(staged, final)
        fsync(final.parent)
        shutil.rmtree(work, ignore_errors=True)
        return final


def file_records(folder: Path) -> list[FileRecord]:
    """Every file below `folder` with its size and sha256, by path."""
    records = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            name = path.relative_to(folder).as_posix()
            records.append(FileRecord(path=name, bytes=path.stat().st_size, sha256=digest))
    return records
