"""Re-hash what an ancestry stands on: every file, every logical digest, every key, every hand-over."""

from collections.abc import Iterator
from pathlib import Path

from data_contracts.breach import ContractBreach
from stages.errors import PosttrainError
from tasks.lineage.ancestry import Ancestry
from tasks.lineage.mismatch import Mismatch
from tasks.store.digest import digest as content_digest
from tasks.store.keys import key_of
from tasks.store.manifest import Manifest, OutputRecord, Record
from tasks.store.objects import MANIFEST, Store, file_records


class Verified(Record):
    """What was looked at, when all of it held."""

    results: int
    files: int
    bytes: int


def rehash(store: Store, ancestry: Ancestry) -> Verified | list[Mismatch]:
    """All mismatches at once, in the order of the walk."""
    found = [mismatch for manifest in ancestry.manifests for mismatch in _of_result(store, manifest)]
    found += _hand_overs(store, ancestry)
    if found:
        return found
    records = [
        record
        for manifest in ancestry.manifests
        for output in manifest.outputs.values()
        for record in output.files
    ]
    return Verified(
        results=len(ancestry.manifests), files=len(records), bytes=sum(record.bytes for record in records)
    )


def _of_result(store: Store, manifest: Manifest) -> Iterator[Mismatch]:
    folder = store.folder(manifest.stage, manifest.key)
    inputs = {name: record.digest for name, record in manifest.inputs.items()}
    key = key_of(manifest.stage, manifest.version, manifest.code, manifest.params, inputs)
    if key != manifest.key:
        problem = f"its parameters, version and inputs give the key {key[:12]}, not {manifest.key[:12]}"
        yield Mismatch(path=str(folder / MANIFEST), problem=problem)
    for name, output in manifest.outputs.items():
        files = list(_of_files(store.output(manifest.stage, manifest.key, name), output))
        yield from files or _of_content(store.output(manifest.stage, manifest.key, name), output)


def _of_files(folder: Path, output: OutputRecord) -> Iterator[Mismatch]:
    recorded = {record.path: bare(record.sha256) for record in output.files}
    present = {record.path: bare(record.sha256) for record in file_records(folder)} if folder.is_dir() else {}
    for path, sha256 in recorded.items():
        if path not in present:
            yield Mismatch(path=str(folder / path), problem="is missing")
        elif present[path] != sha256:
            problem = f"sha256 is {present[path][:12]}…, the manifest says {sha256[:12]}…"
            yield Mismatch(path=str(folder / path), problem=problem)
    for path in sorted(present.keys() - recorded.keys()):
        yield Mismatch(path=str(folder / path), problem="is not in the manifest")


def bare(sha256: str) -> str:
    return sha256.removeprefix("sha256:")


def _of_content(folder: Path, output: OutputRecord) -> Iterator[Mismatch]:
    try:
        digest = content_digest(output.kind, folder)
    except (PosttrainError, ContractBreach, OSError, ValueError) as error:
        yield Mismatch(path=str(folder), problem=f"cannot be read: {error}")
        return
    if digest != output.digest:
        problem = f"its content is {digest[:19]}…, the manifest says {output.digest[:19]}…"
        yield Mismatch(path=str(folder), problem=problem)


def _hand_overs(store: Store, ancestry: Ancestry) -> Iterator[Mismatch]:
    """What a stage read is what its producer's result holds now."""
    for reader, name, record in ancestry.edges():
        folder = store.output(record.stage, record.key, record.output)
        if record.key not in ancestry:
            yield Mismatch(path=str(folder), problem=f"is missing; {reader.stage} read it as {name}")
            continue
        output = ancestry[record.key].outputs.get(record.output)
        if output is None or output.digest != record.digest:
            now = output.digest[:19] if output else "absent"
            problem = f"{reader.stage} read {record.digest[:19]}… as {name}; it is {now}… now"
            yield Mismatch(path=str(folder), problem=problem)
