"""Versions and aliases, against a real MLflow registry."""

import shutil

from tasks.lineage.connection import connect
from tasks.lineage.project import sync, sync_quietly
from tasks.lineage.registry import register

NAME = "posttrain-text2sql"


def versions(home):
    with connect(home) as tracking:
        return list(tracking.client.search_model_versions(f"name = '{NAME}'"))


def champion(home):
    with connect(home) as tracking:
        return tracking.client.get_model_version_by_alias(NAME, "champion")


def test_a_promoted_checkpoint_is_registered_once(pipeline):
    done = register(pipeline.home, pipeline.run_id)
    assert done is not None
    digest = pipeline.made["rl"].outputs["checkpoint"].digest
    assert (done.name, done.version, done.alias, done.digest) == (NAME, "1", "champion", digest)
    assert register(pipeline.home, pipeline.run_id) == done
    assert [version.tags["sha256"] for version in versions(pipeline.home)] == [digest]
    assert str(champion(pipeline.home).version) == "1"


def test_nothing_is_registered_when_a_gate_fails(home, new_pipeline):
    new_pipeline("text2sql-a").run(promoted=False)
    assert register(home, "text2sql-a") is None
    sync(home)
    assert versions(home) == []


def test_a_promotion_made_while_mlflow_was_away_is_registered_by_a_later_sync(pipeline, monkeypatch):
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
        assert sync_quietly(pipeline.home) is not None
    assert versions(pipeline.home) == []
    sync(pipeline.home)
    assert champion(pipeline.home).tags["posttrain.promotion"] == pipeline.made["promote"].key


def test_a_promoted_checkpoint_that_is_gone_is_told_and_stops_nothing(pipeline, caplog):
    shutil.rmtree(pipeline.store.folder("rl", pipeline.made["rl"].key))
    assert sync(pipeline.home).created == 10
    assert versions(pipeline.home) == []
    assert pipeline.made["rl"].digest in caplog.text


def test_the_alias_follows_a_new_promotion_and_stays_where_a_user_moved_it(pipeline, new_pipeline):
    sync(pipeline.home)
    second = new_pipeline("text2sql-b")
    second.made = dict(pipeline.made)
    second.checkpoint("rl", {"policy": ("opd", "checkpoint")}, steps=99)
    second.promote(True)
    sync(pipeline.home)
    assert len(versions(pipeline.home)) == 2
    assert champion(pipeline.home).tags["posttrain.key"] == second.made["rl"].key
    with connect(pipeline.home) as tracking:
        tracking.client.set_registered_model_alias(NAME, "champion", "1")
    sync(pipeline.home)
    assert str(champion(pipeline.home).version) == "1"
    register(pipeline.home, "text2sql-b")
    assert str(champion(pipeline.home).version) == "2"
