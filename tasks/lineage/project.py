"""`sync`: every manifest to MLflow, once. What is there is left alone, what was begun is completed."""

from collections.abc import Iterable

from stages.errors import PosttrainError
from tasks import runs
from tasks.lineage.connection import connect
from tasks.lineage.projection import Projection
from tasks.lineage.promotion import promotions, register_pending
from tasks.store.home import Home
from tasks.store.lock import Owner, locked
from tasks.store.manifest import Manifest, Record
from tasks.store.objects import Store

LOCK_WAIT_S = 120.0
QUIET_LOCK_WAIT_S = 5.0  # at the end of a run, which a later sync can complete


def preload() -> None:
    """Import what a sync needs, which takes seconds, while there is something else to wait for."""
    import mlflow  # noqa: F401


class SyncCount(Record):
    """Stage executions that were projected or completed now, and those that were there."""

    created: int
    present: int


def sync(home: Home, *, run_id: str | None = None, lock_wait_s: float = LOCK_WAIT_S) -> SyncCount:
    """Project every manifest, or those of one pipeline run and their ancestors; register pending promotions.

    One sync works on a home at a time: two would both find a run missing and both make it.
    Raises TrackingUnreachable when MLflow is away, StageBusy when another sync does not end.
    """
    store = Store(home)
    ledger = runs.every(home)
    manifests = in_order(store.manifests())
    if run_id:
        wanted = runs.load(home, run_id)
        manifests = needed_by(manifests, {node.key for node in wanted.nodes() if node.key})
        makers = {wanted.id, *(manifest.provenance.run_id for manifest in manifests)}
        ledger = [run for run in ledger if run.id in makers]
    owner = Owner.this_process(node="lineage sync")
    lock = home.mlflow / "sync.lock"
    with (
        locked(lock, owner, what=f"the MLflow projection of {home.root}", wait_s=lock_wait_s),
        connect(home) as tracking,
    ):
        projection = Projection(home, tracking)
        created = sum([projection.project(manifest) for manifest in manifests])
        for run in ledger:
            projection.close_pipeline(run)
        register_pending(tracking, promotions(store, manifests), projection.model_id)
    return SyncCount(created=created, present=len(manifests) - created)


def sync_quietly(home: Home, run_id: str | None = None) -> str | None:
    """`sync` for the end of a run: never raises; a sentence for the user when something was left undone."""
    try:
        sync(home, run_id=run_id, lock_wait_s=QUIET_LOCK_WAIT_S)
    except PosttrainError as error:
        return str(error)
    except Exception as error:  # the run that is being described is complete, whatever its description meets
        return (
            f"MLflow was not filled ({type(error).__name__}: {error}); nothing is lost, "
            "`posttrain lineage sync` tries again"
        )
    return None


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Producers before consumers, otherwise by the time they ended."""
    by_key = {manifest.key: manifest for manifest in sorted(manifests, key=lambda manifest: manifest.ended)}
    done: dict[str, Manifest] = {}

    def visit(key: str) -> None:
        if key in done or key not in by_key:
            return
        for record in by_key[key].inputs.values():
            visit(record.key)
        done[key] = by_key[key]

    for key in by_key:
        visit(key)
    return list(done.values())


def needed_by(manifests: list[Manifest], keys: set[str]) -> list[Manifest]:
    """Those with the given keys and all that they were made from; `manifests` has producers first."""
    wanted = set(keys)
    for manifest in reversed(manifests):
        if manifest.key in wanted:
            wanted |= {record.key for record in manifest.inputs.values()}
    return [manifest for manifest in manifests if manifest.key in wanted]
