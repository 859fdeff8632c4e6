"""Audits walk real manifests and re-hash real files."""

import shutil

import pytest
from rich.console import Console

from stages.errors import ExitCode, UsageError
from tasks.lineage.ancestry import Ancestry
from tasks.lineage.audit import AuditMismatch, audit, diff, resolve
from tasks.lineage.difference import compare
from tasks.lineage.resolve import audit_target
from tasks.store.manifest import Manifest

ALIAS = "posttrain-text2sql@champion"


def output(pipeline, node, name, *parts):
    return pipeline.store.path(pipeline.made[node].refs()[name]).joinpath(*parts)


def shown(found):
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(found.tree())
    return capture.get()


def test_the_alias_walks_back_to_everything(registered):
    found = audit(registered.home, ALIAS, verify=True)
    assert [m.stage for m in found.ancestry.manifests] == ["prompts", "base", "sft", "opd", "archive", "rl"]
    text = shown(found)
    for fact in (
        "(version 1)",
        "archive ← archive/curve",
        "base ← base/checkpoint",
        "prompts ← prompts/prompts",
    ):
        assert fact in text
    assert "c" * 40 in text and "sha256:" + "e" * 64 in text and "verified  6 results" in text
    said = found.to_json()
    assert said["digest"] == registered.made["rl"].digest
    assert said["commits"] == ["c" * 40] and said["missing"] == []
    files = sum(len(o.files) for m in found.ancestry.manifests for o in m.outputs.values())
    assert said["verified"]["files"] == files > 20


def test_every_file_of_every_result_is_looked_at(pipeline):
    """Flip one byte of each file on the way in turn: each is found and named."""
    found = audit(pipeline.home, f"{pipeline.run_id}/promote").ancestry
    paths = [
        output(pipeline, m.provenance.node, name, file.path)
        for m in found.manifests for name, o in m.outputs.items() for file in o.files
    ]  # fmt: skip
    assert len(paths) > 40
    for path in paths[:: len(paths) // 6]:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(AuditMismatch) as refused:
            audit(pipeline.home, f"{pipeline.run_id}/promote", verify=True)
        assert [mismatch.path for mismatch in refused.value.mismatches] == [str(path)]
        assert str(path) in str(refused.value) and refused.value.exit_code == ExitCode.AUDIT_MISMATCH
        path.write_bytes(whole)
    assert audit(pipeline.home, f"{pipeline.run_id}/promote", verify=True).verified is not None


def test_without_verify_only_manifests_are_read(pipeline):
    output(pipeline, "base", "checkpoint", "model.safetensors").write_bytes(b"torn")
    assert audit(pipeline.home, f"{pipeline.run_id}/rl").verified is None


def test_missing_and_foreign_files_are_named(pipeline):
    gone = output(pipeline, "sft", "checkpoint", "config.json")
    gone.unlink()
    foreign = output(pipeline, "prompts", "domain", "extra.txt")
    foreign.write_text("not ours")
    with pytest.raises(AuditMismatch) as refused:
        audit(pipeline.home, f"{pipeline.run_id}/rl", verify=True)
    assert {(m.path, m.problem) for m in refused.value.mismatches} == {
        (str(gone), "is missing"),
        (str(foreign), "is not in the manifest"),
    }


def edit(pipeline, node, **changes):
    file = pipeline.store.folder(pipeline.made[node].stage, pipeline.made[node].key) / "manifest.json"
    file.write_text(
        Manifest.model_validate_json(file.read_text()).model_copy(update=changes).model_dump_json()
    )
    return file


def test_an_edited_manifest_is_found_by_its_key(pipeline):
    file = edit(pipeline, "base", params={"steps": 6})
    with pytest.raises(AuditMismatch) as refused:
        audit(pipeline.home, f"{pipeline.run_id}/rl", verify=True)
    assert [mismatch.path for mismatch in refused.value.mismatches] == [str(file)]


def test_a_result_made_again_with_other_bytes_is_found_at_the_hand_over(pipeline):
    domain = pipeline.made["prompts"].outputs["domain"]
    made = pipeline.made["archive"].outputs["curve"].model_copy(update={"digest": domain.digest})
    edit(pipeline, "archive", outputs={"curve": made})
    with pytest.raises(AuditMismatch, match=r"rl read .* as archive"):
        audit(pipeline.home, f"{pipeline.run_id}/rl", verify=True)


def test_an_ancestor_that_is_gone_is_shown_and_is_a_mismatch(pipeline):
    base = pipeline.made["base"]
    shutil.rmtree(pipeline.store.folder("base", base.key))
    assert "not in the store any more" in shown(audit(pipeline.home, f"{pipeline.run_id}/rl"))
    with pytest.raises(AuditMismatch, match=f"base/{base.key}/outputs/checkpoint: is missing"):
        audit(pipeline.home, f"{pipeline.run_id}/rl", verify=True)


def test_every_way_to_name_a_checkpoint(registered):
    home, ref = registered.home, registered.made["rl"].refs()["checkpoint"]
    hexadecimal = ref.digest.removeprefix("sha256:")
    targets = [
        ALIAS, "posttrain-text2sql", "posttrain-text2sql@1", f"models:/{ALIAS}", ref.digest, ref.digest[:20],
        hexadecimal[:12], "text2sql-a", "text2sql-a/rl", "rl", str(registered.store.path(ref)),
    ]  # fmt: skip
    assert [resolve(home, target).ref for target in targets] == [ref] * len(targets)


def test_the_target_to_print_is_the_alias_only_where_it_points_to_this_promotion(registered, new_pipeline):
    assert audit_target(registered.home, registered.run_id) == ALIAS
    elsewhere = new_pipeline("text2sql-b").run(promoted=True)
    assert audit_target(elsewhere.home, "text2sql-b") == "text2sql-b/rl"  # MLflow has nothing of it


def test_a_copied_folder_is_known_by_its_content(pipeline, tmp_path):
    copied = shutil.copytree(output(pipeline, "opd", "checkpoint"), tmp_path / "copy")
    assert resolve(pipeline.home, str(copied)).stage == "opd"
    (copied / "chat_template.jinja").write_text("another template")
    with pytest.raises(UsageError, match="changed, or not made here"):
        resolve(pipeline.home, str(copied))


def test_a_changed_folder_of_the_store_is_a_mismatch(pipeline):
    folder = output(pipeline, "opd", "checkpoint")
    (folder / "chat_template.jinja").write_text("another template")
    with pytest.raises(AuditMismatch, match="opd"):
        resolve(pipeline.home, str(folder))


@pytest.mark.parametrize(
    "target", ["nothing", "sha256:00000000", "posttrain-text2sql@canary", "text2sql-a/none"]
)
def test_a_target_that_names_nothing_is_a_usage_error(registered, target):
    with pytest.raises(UsageError):
        resolve(registered.home, target)


def test_the_ledger_answers_when_mlflow_does_not(registered, monkeypatch):
    expected = resolve(registered.home, ALIAS).ref
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    found = resolve(registered.home, ALIAS)
    assert found.ref == expected
    assert len(found.notices) == 1 and "did not answer" in found.notices[0]
    assert "did not answer" in shown(audit(registered.home, ALIAS))


def test_a_promotion_that_was_not_synced_is_found_with_a_notice(pipeline):
    found = resolve(pipeline.home, ALIAS)
    assert found.stage == "rl" and "posttrain lineage sync" in found.notices[0]


def test_diff_names_the_first_ancestor_and_its_field(pipeline, new_pipeline):
    new_pipeline("text2sql-b").run(base_steps=9)
    found = diff(pipeline.home, "text2sql-a", "text2sql-b")
    assert found.first is not None and (found.first.node, found.first.inherited) == ("base", False)
    assert [(f.field, f.a, f.b) for f in found.first.fields] == [("params.steps", "5", "9")]
    later = {stage.node: stage for stage in found.stages[1:]}
    assert later["archive"].inherited and later["rl"].inherited
    assert "first differ in base:" in found.lines()[0]


def test_diff_tells_results_that_differ_under_one_key(pipeline):
    made = pipeline.made["base"]
    record = made.outputs["checkpoint"].model_copy(update={"digest": "sha256:" + "0" * 64})
    provenance = made.provenance.model_copy(update={"environment_digest": "sha256:other"})
    other = made.model_copy(update={"outputs": {"checkpoint": record}, "provenance": provenance})
    found = compare(
        "a", Ancestry(manifests=(made,), missing=()), "b", Ancestry(manifests=(other,), missing=())
    )
    assert found.first is not None
    fields = [field.field for field in found.first.fields]
    assert fields == ["outputs.checkpoint", "provenance.environment_digest"]


def test_diff_of_one_thing_with_itself(pipeline):
    found = diff(pipeline.home, "text2sql-a/rl", pipeline.made["rl"].digest)
    assert found.first is None and found.lines() == ["text2sql-a/rl and rl/checkpoint have the same lineage"]
