"""Promotions found in manifests become versions of `posttrain-<flow>` in MLflow's registry, one a digest."""

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from tasks.lineage.connection import Tracking
from tasks.store.manifest import InputRecord, Manifest, Record
from tasks.store.objects import Store

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

logger = logging.getLogger("posttrain.lineage")
PROMOTE = "promote"  # the stage
CHAMPION = "champion"
ANNOUNCED = "posttrain.promoted_at"  # on a version whose alias has been set: only then is it complete


class Promotion(Record):
    """A decision.json that says promoted, and the checkpoint that it is about."""

    flow: str
    key: str  # of the promote stage's result
    ended: datetime
    policy: InputRecord

    @property
    def name(self) -> str:
        return f"posttrain-{self.flow}"


class Registration(Record):
    name: str
    version: str
    alias: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name} version {self.version} ({self.name}@{self.alias})"


def promotions(store: Store, manifests: list[Manifest]) -> list[Promotion]:
    """Oldest first."""
    found = [promotion for manifest in manifests if (promotion := promotion_of(store, manifest))]
    return sorted(found, key=lambda promotion: promotion.ended)


def promotion_of(store: Store, manifest: Manifest) -> Promotion | None:
    """None when the manifest is not of a promote stage, or its gates did not hold."""
    if manifest.stage != PROMOTE:
        return None
    file = store.output(manifest.stage, manifest.key, "decision") / "decision.json"
    if not json.loads(file.read_text())["promoted"]:
        return None
    return Promotion(
        flow=manifest.provenance.flow,
        key=manifest.key,
        ended=manifest.ended,
        policy=manifest.inputs["policy"],
    )


def register_pending(
    tracking: Tracking, found: list[Promotion], model_id: Callable[[InputRecord], str | None]
) -> None:
    """Register what was promoted while MLflow was away.

    The alias follows the newest promotion, and stays where a user has moved it since.
    """
    for promotion in found:
        versions = _versions(tracking, promotion.name)
        version = _with_digest(versions, promotion.policy.digest)
        if version is not None and ANNOUNCED in version.tags:
            continue
        times = [
            datetime.fromisoformat(other.tags[ANNOUNCED]) for other in versions if ANNOUNCED in other.tags
        ]
        newest = all(promotion.ended > time for time in times)
        model = model_id(promotion.policy)
        if version is None and model is None:
            logger.warning("%s: the promoted %s is gone", promotion.name, promotion.policy.digest)
            continue
        register_version(tracking, promotion, model, champion=newest)


def register_version(
    tracking: Tracking, promotion: Promotion, model_id: str | None, *, champion: bool = True
) -> Registration:
    """The version with the promoted digest, made if there is none; `champion` points the alias to it."""
    client, name, digest = tracking.client, promotion.name, promotion.policy.digest
    version = _with_digest(_versions(tracking, name), digest)
    if version is None:
        assert model_id is not None, "a checkpoint is projected before its promotion"
        if not client.search_registered_models(filter_string=f"name = '{name}'"):
            client.create_registered_model(
                name, description=f"Promoted by the flow {promotion.flow} of posttrain."
            )
        model = client.get_logged_model(model_id)
        tags = {"sha256": digest, "posttrain.key": promotion.policy.key, "posttrain.promotion": promotion.key}
        version = client.create_model_version(
            name, f"models:/{model_id}", run_id=model.source_run_id, tags=tags, model_id=model_id
        )
        link = json.dumps([{"name": name, "version": version.version}])
        client.set_logged_model_tags(model_id, {"mlflow.modelVersions": link})
    if champion:
        client.set_registered_model_alias(name, CHAMPION, version.version)
    client.set_model_version_tag(name, version.version, ANNOUNCED, promotion.ended.isoformat())
    return Registration(name=name, version=str(version.version), alias=CHAMPION, digest=digest)


def _versions(tracking: Tracking, name: str) -> list["ModelVersion"]:
    return list(tracking.client.search_model_versions(f"name = '{name}'"))


def _with_digest(versions: list["ModelVersion"], digest: str) -> "ModelVersion | None":
    return next((version for version in versions if version.tags.get("sha256") == digest), None)
