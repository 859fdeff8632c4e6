"""What a user means by a target of an audit: MODEL[@alias], PATH, sha256:..., RUN, RUN/NODE or NODE.

Everything ends at one output of one result in the store, found by its digest.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from stages.declaration import Kind
from stages.errors import UsageError
from tasks import runs
from tasks.lineage.connection import TrackingUnreachable, connect, tracking_uri
from tasks.lineage.mismatch import AuditMismatch, Mismatch
from tasks.lineage.promotion import CHAMPION, promotions
from tasks.lineage.registry import promotion_of_run
from tasks.store.digest import digest as content_digest
from tasks.store.home import Home
from tasks.store.manifest import Manifest, Ref
from tasks.store.objects import MANIFEST, Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

DIGEST = re.compile(r"(sha256:)?[0-9a-f]{8,64}")
NODE = re.compile(r"\w[\w.-]*")


class Subject(Ref):
    """The output that a target names. `notices` say what the user should know about how it was found."""

    target: str
    title: str
    notices: tuple[str, ...] = ()

    @property
    def ref(self) -> Ref:
        return Ref.model_validate(self.model_dump(include=set(Ref.model_fields)))


def resolve(home: Home, target: str) -> Subject:
    """Raises UsageError when the target names nothing here, AuditMismatch for a changed result."""
    manifests = list(Store(home).manifests())
    if DIGEST.fullmatch(target):
        return _by_digest(manifests, target)
    if NODE.fullmatch(target) and (run := _last_run_with(home, manifests, target)):
        return _by_run(home, manifests, f"{run.id}/{target}")
    if Path(target).is_dir():
        return _by_folder(home, manifests, target)
    if "@" not in target and (home.runs.is_dir() and _names_a_run(home, target.partition("/")[0])):
        return _by_run(home, manifests, target)
    return _by_model(home, manifests, target)


def audit_target(home: Home, run_id: str) -> str:
    """What to give to an audit of a run's outcome: MODEL@champion where that is what the run promoted, else
    RUN/NODE of its last checkpoint, else the run."""
    run = runs.load(home, run_id)
    promotion = promotion_of_run(home, run.id)
    if promotion is not None:
        try:
            version = _registered(home, promotion.name, CHAMPION)
        except TrackingUnreachable:
            version = None
        if version is not None and version.tags.get("sha256") == promotion.policy.digest:
            return f"{promotion.name}@{CHAMPION}"
    store = Store(home)
    for node in reversed(run.nodes()):
        made = store.lookup(node.stage, node.key) if node.key else None
        if made is not None and next(iter(made.outputs.values())).kind is Kind.CHECKPOINT:
            return f"{run.id}/{node.node}"
    return run.id


def _subject(ref: Ref, target: str, title: str, notices: tuple[str, ...] = ()) -> Subject:
    return Subject(**ref.model_dump(), target=target, title=title, notices=notices)


def _newest(manifests: list[Manifest], digest: str) -> Ref | None:
    """The most recent output with this digest; a short form fits what it begins."""
    found = [
        (manifest.ended, ref)
        for manifest in manifests
        for ref in manifest.refs().values()
        if ref.digest.startswith(digest)
    ]
    return max(found, key=lambda item: item[0])[1] if found else None


def _by_digest(manifests: list[Manifest], target: str) -> Subject:
    digest = target if target.startswith("sha256:") else f"sha256:{target}"
    fits = {
        ref.digest
        for manifest in manifests
        for ref in manifest.refs().values()
        if ref.digest.startswith(digest)
    }
    if len(fits) > 1:
        raise UsageError(f"{target} fits {len(fits)} digests, give more of it: {', '.join(sorted(fits)[:3])}")
    ref = _newest(manifests, digest)
    if ref is None:
        raise UsageError(
            f"nothing in this store has the digest {target}; `posttrain status` lists what runs made"
        )
    return _subject(ref, target, f"{ref.stage}/{ref.output}")


def _by_folder(home: Home, manifests: list[Manifest], target: str) -> Subject:
    folder = Path(target).resolve()
    kind = Kind.FILES
    if (folder / "config.json").exists():
        kind = Kind.CHECKPOINT
    elif (folder / "_manifest.json").exists():
        kind = Kind.DATASET
    digest = content_digest(kind, folder)
    ref = _newest(manifests, digest)
    if ref is None:
        if folder.is_relative_to(home.store.resolve()) and (folder.parents[1] / MANIFEST).exists():
            raise AuditMismatch(
                [Mismatch(path=str(folder), problem=f"its content is {digest}, its manifest differs")]
            )
        raise UsageError(
            f"{folder} has the digest {digest}, which nothing in this store has: changed, or not made here"
        )
    return _subject(ref, target, f"{ref.stage}/{ref.output} at {folder}")


def _names_a_run(home: Home, name: str) -> bool:
    return any(file.parent.name.startswith(name) for file in home.runs.glob("*/run.json")) if name else False


def _last_run_with(home: Home, manifests: list[Manifest], node: str) -> runs.Run | None:
    """The newest run of a flow in which a node of this name is finished."""
    made = {manifest.key for manifest in manifests}
    for run in reversed(runs.of_flows(home)):
        if (record := run.node(node)) is not None and record.key in made:
            return run
    return None


def _by_run(home: Home, manifests: list[Manifest], target: str) -> Subject:
    """RUN/NODE is that node's main output; RUN alone is what it promoted, else its last checkpoint."""
    name, _, wanted = target.partition("/")
    run = runs.load(home, name)
    made = {manifest.key: manifest for manifest in manifests}
    nodes = [node for node in run.nodes() if node.key in made]
    if wanted:
        nodes = [node for node in nodes if node.node == wanted]
        if not nodes:
            raise UsageError(
                f"run {run.id} has no finished node {wanted!r}; `posttrain status {run.id}` lists them"
            )
        ref = next(iter(made[nodes[0].key or ""].refs().values()))
        return _subject(ref, target, f"{run.id}/{wanted}")
    if promotion := promotion_of_run(home, run.id):
        policy = promotion.policy
        return _subject(made[policy.key].refs()[policy.output], target, f"promoted by {run.id}")
    checkpoints = [
        ref for node in nodes for ref in made[node.key or ""].refs().values() if ref.kind is Kind.CHECKPOINT
    ]
    if not checkpoints:
        raise UsageError(
            f"run {run.id} has no finished checkpoint; `posttrain status {run.id}` shows how it stands"
        )
    return _subject(checkpoints[-1], target, f"the last checkpoint of {run.id}")


def _by_model(home: Home, manifests: list[Manifest], target: str) -> Subject:
    name, _, alias = target.removeprefix("models:/").partition("@")
    alias = alias or CHAMPION
    try:
        version = _registered(home, name, alias)
        away = f"MLflow has no {name}@{alias}"
    except TrackingUnreachable:
        version, away = None, f"MLflow at {tracking_uri(home)} did not answer"
    if version is not None:
        ref = _newest(manifests, version.tags.get("sha256", "untagged"))
        if ref is None:
            raise UsageError(f"{name} version {version.version} was made from another store than {home.root}")
        return _subject(ref, target, f"{name}@{alias} (version {version.version})")
    found = [promotion for promotion in promotions(Store(home), manifests) if promotion.name == name]
    if not found or alias != CHAMPION:
        raise UsageError(f"{target!r} is no digest, folder or run here, and {away}")
    policy = found[-1].policy
    ref = {manifest.key: manifest for manifest in manifests}[policy.key].refs()[policy.output]
    notice = f"{away}: taken from the store's newest promotion; `posttrain lineage sync` registers it"
    return _subject(ref, target, f"{name}@{alias}", (notice,))


def _registered(home: Home, name: str, alias: str) -> "ModelVersion | None":
    """A version by its alias or number; None when there is none (a database is not made to find that out)."""
    uri = tracking_uri(home)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        return None
    with connect(home) as tracking:
        found = list(tracking.client.search_model_versions(f"name = '{name}'"))
        if alias.isdigit():
            return next((version for version in found if str(version.version) == alias), None)
        return _with_alias(tracking.client, name, alias) if found else None


def _with_alias(client: "MlflowClient", name: str, alias: str) -> "ModelVersion | None":
    aliases = client.get_registered_model(name).aliases
    return client.get_model_version(name, aliases[alias]) if alias in aliases else None
