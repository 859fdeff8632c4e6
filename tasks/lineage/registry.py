"""`register`: the version and the alias of a run's promoted checkpoint."""

from tasks import runs
from tasks.lineage.connection import connect
from tasks.lineage.project import sync
from tasks.lineage.promotion import PROMOTE, Promotion, Registration, promotion_of, register_version
from tasks.store.home import Home
from tasks.store.objects import Store


def promotion_of_run(home: Home, run_id: str) -> Promotion | None:
    """What the run's promote node decided; None when it was not reached or the gates did not hold."""
    store = Store(home)
    for node in runs.load(home, run_id).nodes():
        manifest = store.lookup(node.stage, node.key) if node.stage == PROMOTE and node.key else None
        if manifest is not None:
            return promotion_of(store, manifest)
    return None


def register(home: Home, run_id: str) -> Registration | None:
    """Fill MLflow with the run, then point `posttrain-<flow>@champion` at its promoted checkpoint.

    Equal digests are one version. None when nothing was promoted. Raises TrackingUnreachable; a later `sync`
    registers what was pending.
    """
    promotion = promotion_of_run(home, run_id)
    if promotion is None:
        return None
    sync(home, run_id=run_id)
    with connect(home) as tracking:
        return register_version(tracking, promotion, model_id=None)
