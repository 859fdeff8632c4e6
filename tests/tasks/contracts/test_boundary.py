"""What breaks a contract is refused with stage, column, expectation and rows, and is kept in quarantine."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from data_contracts.breach import ContractBreach
from data_contracts.checkpoint import tokenizer_digest
from data_contracts.dataset import parts
from stages.declaration import CHECKPOINT, FILES, Declaration, StageParams, dataset
from tasks.contracts.agreement import check_inputs
from tasks.contracts.boundary import check_checkpoint, check_dataset, check_outputs

Disk = Any  # of conftest.py
Rows = list[dict[str, Any]]


class Boundary:
    """The hand-over of an rl stage whose policy is at `policy`."""

    def __init__(self, disk: Disk, declaration: Declaration) -> None:
        self.disk = disk
        self.declaration = declaration
        self.policy = disk.checkpoint("policy")
        self.quarantine = disk.root / "quarantine" / "rl-abc"

    def check(self, rollouts: Path, checkpoint: Path | None = None) -> dict[str, Any]:
        return check_outputs(
            self.declaration,
            node="rl",
            inputs={"policy": self.policy},
            outputs={
                "checkpoint": checkpoint or self.disk.checkpoint("checkpoint"),
                "rollouts": rollouts,
            },
            reports=self.disk.root / "reports",
            quarantine=self.quarantine,
        )

    def refused(self, rollouts: Path, checkpoint: Path | None = None) -> ContractBreach:
        with pytest.raises(ContractBreach) as caught:
            self.check(rollouts, checkpoint)
        assert caught.value.stage == "rl"
        assert str(caught.value).startswith("stage rl: breaks ")
        return caught.value

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.quarantine / "report.json").read_text())
        return found

    def quarantined(self) -> pa.Table:
        with pa.memory_map(str(self.quarantine / "rollouts.arrow")) as file:
            return pa.ipc.open_file(file).read_all()


@pytest.fixture
def boundary(disk: Disk, rl: Declaration) -> Boundary:
    return Boundary(disk, rl)


def test_good_outputs_pass_with_reports(boundary: Boundary, disk: Disk, rows: Callable[..., Rows]) -> None:
    found = boundary.check(disk.rollouts("rollouts", rows(), boundary.policy))
    assert found["rollouts"]["warnings"] == []
    assert found["rollouts"]["expectations"] == 11
    assert len(json.dumps(found)) < 1000
    report = json.loads((disk.root / "reports" / "contract-rollouts.json").read_text())
    assert report["rows"] == 12
    assert [result["success"] for result in report["suite"]] == [True] * 11
    facts = json.loads((disk.root / "reports" / "contract-checkpoint.json").read_text())["facts"]
    assert facts["tokenizer_digest"] == tokenizer_digest(boundary.policy)
    assert not boundary.quarantine.exists()


def test_a_nan_logprob_is_refused_and_its_row_kept(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    spoiled = rows()
    spoiled[5]["logprobs"] = [math.nan, -1.0]
    error = boundary.refused(disk.rollouts("rollouts", spoiled, boundary.policy))
    assert str(error) == ("stage rl: breaks rollouts/1 (rollouts): column logprobs: finite (rows p1:0/p1:1)")
    assert error.breaches[0].output == "rollouts"
    (row,) = boundary.quarantined().to_pylist()
    assert (row["prompt_id"], row["sample"]) == ("p1", 1)
    assert row["broken_expectations"] == "logprobs: finite"
    report = boundary.report()
    assert (report["stage"], report["node"]) == ("rl", "rl")
    (breach,) = report["breaches"]["rollouts"]
    assert (breach["column"], breach["expectation"], breach["rows"]) == ("logprobs", "finite", ["p1:0/p1:1"])


def test_a_split_group_is_refused_and_its_rows_kept(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    split = rows()
    del split[4]
    error = boundary.refused(disk.rollouts("rollouts", split, boundary.policy))
    assert "column sample: 0..G-1 within its group (the group is whole) (rows p1:0/p1:3)" in str(error)
    assert boundary.quarantined()["group_id"].to_pylist() == ["0/p1"] * 3


def test_another_tokenizer_is_refused(boundary: Boundary, disk: Disk, rows: Callable[..., Rows]) -> None:
    other = disk.tokenizer("other", c=4)
    rollouts = disk.rollouts("rollouts", rows(), other)
    error = boundary.refused(rollouts)
    assert "column posttrain.tokenizer: equal to that of input policy" in str(error)
    assert tokenizer_digest(other) in str(error)
    assert not rollouts.exists()  # not about single rows: the whole of it is in quarantine
    assert len(parts(boundary.quarantine / "rollouts")) == 1


def test_a_missing_column_is_refused(boundary: Boundary, disk: Disk, rows: Callable[..., Rows]) -> None:
    rollouts = disk.rollouts("rollouts", rows(), boundary.policy)
    (part,) = parts(rollouts)
    with pa.OSFile(str(part)) as file:
        table = pa.ipc.open_file(file).read_all().drop_columns(["weight_version"])
    with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    manifest = json.loads((rollouts / "_manifest.json").read_text())
    manifest["parts"][0]["bytes"] = part.stat().st_size
    (rollouts / "_manifest.json").write_text(json.dumps(manifest))
    assert "column weight_version: present" in str(boundary.refused(rollouts))
    assert (boundary.quarantine / "rollouts" / part.name).exists()


def test_groups_of_one_and_empty_tables_are_refused(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    error = boundary.refused(disk.rollouts("ones", rows(3, 1), boundary.policy), boundary.policy)
    assert "column group_id: more than one sample in a group" in str(error)
    error = boundary.refused(disk.rollouts("none", [], boundary.policy), boundary.policy)
    assert "at least one row" in str(error)
    assert list(boundary.report()["breaches"]) == [
        "rollouts"
    ]  # of the second attempt, which replaced the first
    assert not (boundary.quarantine / "rollouts.arrow").exists()


def test_ids_are_bounded_by_the_checkpoint_even_if_the_dataset_does_not_say(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    spoiled = rows()
    spoiled[0]["completion_ids"] = [3, 6]
    error = boundary.refused(disk.rollouts("rollouts", spoiled, boundary.policy))
    assert "column completion_ids: token ids in [0, 6) (rows p0:0/p0:0)" in str(error)


def test_a_vocabulary_that_differs_from_the_checkpoint_is_refused(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    rollouts = disk.rollouts("rollouts", rows(), boundary.policy, vocabulary="600")
    assert "column posttrain.vocabulary: equal to that of input policy" in str(boundary.refused(rollouts))


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"tokens": {"c": 4}}, "tokenizer_digest"),
        ({"template": "{{ m }}!"}, "chat_template_digest"),
        ({"eos": [1, 2]}, "eos_ids"),
        ({"pad": 4}, "pad_id"),
        ({"vocab_size": 7}, "vocabulary_size"),
        ({"architecture": "Qwen3ForCausalLM"}, "architecture"),
    ],
)
def test_what_comes_out_must_agree_with_what_went_in(
    change: dict[str, Any], column: str, boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    rollouts = disk.rollouts("rollouts", rows(), boundary.policy)
    error = boundary.refused(rollouts, disk.checkpoint("trained", **change))
    assert [breach.column for breach in error.breaches] == [column]
    assert error.breaches[0].output == "checkpoint"
    assert (boundary.quarantine / "checkpoint" / "model.safetensors").exists()
    assert rollouts.exists()  # nothing is wrong with it


def test_weights_that_are_not_finite_are_refused(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    broken = disk.checkpoint("diverged", weight=math.nan)
    error = boundary.refused(disk.rollouts("rollouts", rows(), boundary.policy), broken)
    assert "finite weights" in str(error)


def test_suites_refuse_what_arrow_rules_let_pass(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    spoiled = rows()
    for row in spoiled[7:]:
        row["reward"] = 2.0
    error = boundary.refused(disk.rollouts("rollouts", spoiled, boundary.policy))
    assert error.breaches[0].column == "reward"
    assert "expect_column_values_to_be_between(max_value=1.0, min_value=0.0)" in str(error)
    assert "(rows p1:0/p1:3, p2:0/p2:0, p2:0/p2:1 and 2 more)" in str(error)
    assert boundary.quarantined()["reward"].to_pylist() == [2.0] * 5


def test_warnings_are_committed_and_told(boundary: Boundary, disk: Disk, rows: Callable[..., Rows]) -> None:
    truncated = [{**row, "stop_reason": "length", "reward": 0.0} for row in rows()]
    found = boundary.check(disk.rollouts("rollouts", truncated, boundary.policy))
    told = " ".join(found["rollouts"]["warnings"])
    assert "every sample was cut at the length limit" in told
    assert "all rewards are equal: nothing can be learnt" in told
    report = json.loads((disk.root / "reports" / "contract-rollouts.json").read_text())
    assert {warning["column"] for warning in report["warnings"]} == {"stop_reason", "reward"}
    assert not boundary.quarantine.exists()


def test_a_correct_sample_without_signature_is_told(
    boundary: Boundary, disk: Disk, rows: Callable[..., Rows]
) -> None:
    unsigned = rows()
    unsigned[0]["signature"] = unsigned[1]["signature"] = None  # the first is not correct and may lack one
    found = boundary.check(disk.rollouts("rollouts", unsigned, boundary.policy))
    (warning,) = found["rollouts"]["warnings"]
    assert "a correct sample has a strategy signature" in warning
    assert "(rows p0:0/p0:1)" in warning


def test_a_first_checkpoint_is_held_against_the_tokenizer_it_was_given(disk: Disk, base: Declaration) -> None:
    def check(name: str, **tokens: int) -> dict[str, Any]:
        return check_outputs(
            base,
            node="base",
            inputs={"tokenizer": disk.tokenizer(f"{name}-tokenizer", **tokens)},
            outputs={"checkpoint": disk.checkpoint(name)},
            reports=disk.root / "reports",
            quarantine=disk.root / "quarantine",
        )

    assert check("same")["checkpoint"]["warnings"] == []
    with pytest.raises(ContractBreach, match="column tokenizer_digest: equal to that of input tokenizer"):
        check("different", c=4)


def test_inputs_that_do_not_agree_are_refused_before_any_work(disk: Disk, rows: Callable[..., Rows]) -> None:
    stage = Declaration(
        name="distil",
        version=1,
        params=StageParams,
        inputs={"policy": CHECKPOINT, "teacher": CHECKPOINT, "seen": dataset("rollouts/1"), "domain": FILES},
        outputs={"checkpoint": CHECKPOINT},
        optional=frozenset({"seen"}),
    )
    policy, teacher = disk.checkpoint("policy"), disk.checkpoint("teacher", architecture="Qwen3ForCausalLM")
    seen = disk.rollouts("seen", rows(), policy)
    check_inputs(stage, stage.name, {"policy": policy, "teacher": teacher, "seen": seen, "domain": disk.root})
    stranger = disk.checkpoint("stranger", tokens={"c": 4})
    with pytest.raises(ContractBreach, match=r"stage distil: .*column tokenizer_digest: .*input teacher has"):
        check_inputs(stage, stage.name, {"policy": policy, "teacher": stranger})
    with pytest.raises(ContractBreach, match=r"column posttrain.tokenizer: .*input seen has"):
        check_inputs(stage, stage.name, {"policy": stranger, "seen": seen})


def test_artefacts_can_be_checked_by_themselves(disk: Disk, rows: Callable[..., Rows]) -> None:
    policy = disk.checkpoint("policy")
    assert check_checkpoint(policy).breaches == []
    verdict = check_dataset(disk.rollouts("rollouts", rows(), policy), "rollouts/1")
    assert (verdict.breaches, verdict.rows) == ([], 12)
    assert check_dataset(disk.root / "nowhere", "rollouts/1").critical[0].expectation == "complete"
