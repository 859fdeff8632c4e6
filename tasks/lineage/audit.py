"""`audit`: from a model, a folder, a digest or a run back to base, prompts, archive, database and code."""

from typing import Any

from rich.markup import escape
from rich.tree import Tree

from stages.declaration import Kind
from tasks.lineage.ancestry import Ancestry, walk
from tasks.lineage.difference import Difference, compare
from tasks.lineage.mismatch import AuditMismatch, Mismatch
from tasks.lineage.resolve import Subject, resolve
from tasks.lineage.verify import Verified, bare, rehash
from tasks.store.home import Home
from tasks.store.manifest import InputRecord, Manifest, OutputRecord, Record
from tasks.store.objects import Store

__all__ = ["Audit", "AuditMismatch", "Mismatch", "Subject", "audit", "diff", "resolve"]

SHOWN_FILES = 4
DIGEST_CHARS = 19  # sha256: and twelve digits
KEY_CHARS = 12


class Audit(Record):
    subject: Subject
    ancestry: Ancestry
    verified: Verified | None = None

    @property
    def recipes(self) -> list[str]:
        return _distinct(manifest.provenance.recipe_digest for manifest in self.ancestry.manifests)

    @property
    def commits(self) -> list[str]:
        return _distinct(_commit(manifest) for manifest in self.ancestry.manifests)

    @property
    def environments(self) -> list[str]:
        return _distinct(manifest.provenance.environment_digest for manifest in self.ancestry.manifests)

    def to_json(self) -> dict[str, Any]:
        """For scripts; results in the order in which they were made."""
        return {
            "target": self.subject.target,
            "title": self.subject.title,
            "notices": list(self.subject.notices),
            **self.subject.ref.model_dump(mode="json"),
            "recipes": self.recipes,
            "commits": self.commits,
            "environments": self.environments,
            "results": [_result_json(manifest) for manifest in self.ancestry.manifests],
            "missing": [record.model_dump() for record in self.ancestry.missing],
            "verified": self.verified.model_dump() if self.verified else None,
        }

    def tree(self) -> Tree:
        """For people: each result once in full, later uses point to it."""
        subject, seen = self.subject, set[str]()
        root = Tree(f"[bold]{escape(subject.title)}[/]")
        for notice in subject.notices:
            root.add(f"[yellow]{escape(notice)}[/]")
        self._grow(root, "", InputRecord(**subject.model_dump(include=set(InputRecord.model_fields))), seen)
        facts = root.add("[bold]made by[/]")
        for title, values in [
            ("recipe", self.recipes),
            ("git commit", self.commits),
            ("environment", self.environments),
        ]:
            facts.add(f"{title}  {escape(', '.join(values)) or '[yellow]not recorded[/]'}")
        if self.verified:
            done = self.verified
            root.add(
                f"[green]verified[/]  {done.results} results, {done.files} files, "
                f"{done.bytes / 1e6:,.1f} MB: every file, digest, key and hand-over is as recorded"
            )
        return root

    def _grow(self, above: Tree, name: str, record: InputRecord, seen: set[str]) -> None:
        label = f"[cyan]{escape(name)}[/] ← " if name else ""
        what = f"{label}[bold]{record.stage}[/]/{record.output}  {record.digest[:DIGEST_CHARS]}"
        if record.key not in self.ancestry:
            above.add(f"{what}  [red]not in the store any more[/]")
            return
        manifest = self.ancestry[record.key]
        output = manifest.outputs.get(record.output)
        files = _files(output) if output and output.kind is Kind.FILES else ""
        if record.key in seen:
            above.add(f"{what}{files}  [dim](result shown above)[/]")
            return
        seen.add(record.key)
        branch = above.add(f"{what}{files}  [dim]{escape(_how(manifest))}[/]")
        for given, needed in manifest.inputs.items():
            self._grow(branch, given, needed, seen)


def audit(home: Home, target: str, verify: bool = False) -> Audit:
    """Walk back from the target; with `verify` re-hash everything on the way.

    Raises UsageError for a target that names nothing, AuditMismatch naming what is not as recorded.
    """
    store, subject = Store(home), resolve(home, target)
    ancestry = walk(store, subject.ref)
    found = rehash(store, ancestry) if verify else None
    if isinstance(found, list):
        raise AuditMismatch(found)
    return Audit(subject=subject, ancestry=ancestry, verified=found)


def diff(home: Home, a: str, b: str) -> Difference:
    """The first ancestor in which two artefacts differ, and in which of its fields."""
    store = Store(home)
    one, other = resolve(home, a), resolve(home, b)
    return compare(one.title, walk(store, one.ref), other.title, walk(store, other.ref))


def _how(manifest: Manifest) -> str:
    attempts = f", {manifest.attempts} attempts" if manifest.attempts > 1 else ""
    source = f", from {manifest.params['source']}" if manifest.params.get("source") else ""
    run = manifest.provenance.run_id or "no run"
    return f"key {manifest.key[:KEY_CHARS]}, {run}, {manifest.seconds:.0f} s{attempts}{source}"


def _files(output: OutputRecord) -> str:
    shown = [f"{file.path} {bare(file.sha256)[:KEY_CHARS]}" for file in output.files[:SHOWN_FILES]]
    more = len(output.files) - SHOWN_FILES
    return f"  [magenta]{escape(', '.join(shown))}{f' and {more} more' if more > 0 else ''}[/]"


def _commit(manifest: Manifest) -> str:
    provenance = manifest.provenance
    dirty = " with uncommitted changes" if provenance.git_dirty else ""
    return f"{provenance.git_commit}{dirty}" if provenance.git_commit else ""


def _result_json(manifest: Manifest) -> dict[str, Any]:
    outputs = {
        name: {
            "digest": output.digest,
            "kind": output.kind,
            "contract": output.contract,
            "rows": output.rows,
            "files": {file.path: f"sha256:{bare(file.sha256)}" for file in output.files},
        }
        for name, output in manifest.outputs.items()
    }
    return {
        "stage": manifest.stage,
        "version": manifest.version,
        "code": manifest.code,
        "key": manifest.key,
        "params": manifest.params,
        "inputs": {name: record.model_dump() for name, record in manifest.inputs.items()},
        "outputs": outputs,
        "seconds": manifest.seconds,
        "attempts": manifest.attempts,
        "ended": manifest.ended.isoformat(),
        "provenance": manifest.provenance.model_dump(),
    }


def _distinct(values: Any) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]
