"""The walk from an output back to everything that it was made from."""

from collections.abc import Iterator

from tasks.store.manifest import InputRecord, Manifest, Record, Ref
from tasks.store.objects import Store


class Ancestry(Record):
    """Every result on the way, producers first, each once. `missing` are inputs whose producer is gone."""

    manifests: tuple[Manifest, ...]
    missing: tuple[InputRecord, ...]

    def __getitem__(self, key: str) -> Manifest:
        return next(manifest for manifest in self.manifests if manifest.key == key)

    def __contains__(self, key: str) -> bool:
        return any(manifest.key == key for manifest in self.manifests)

    def edges(self) -> Iterator[tuple[Manifest, str, InputRecord]]:
        """Each use of an input: who reads it, under what name, and what it is."""
        for manifest in self.manifests:
            for name, record in manifest.inputs.items():
                yield manifest, name, record


def walk(store: Store, ref: Ref) -> Ancestry:
    """Raises StoreDamaged for a manifest on the way that does not parse."""
    found: dict[str, Manifest] = {}
    missing: dict[tuple[str, str], InputRecord] = {}

    def visit(stage: str, key: str) -> bool:
        if key in found:
            return True
        manifest = store.lookup(stage, key)
        if manifest is None:
            return False
        for record in manifest.inputs.values():
            if not visit(record.stage, record.key):
                missing[record.key, record.output] = record
        found[key] = manifest
        return True

    visit(ref.stage, ref.key)
    return Ancestry(manifests=tuple(found.values()), missing=tuple(missing.values()))
