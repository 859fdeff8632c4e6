"""Reading: schema and metadata are checked on every open, and the error names what is wrong."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from data_contracts.breach import ContractBreach
from data_contracts.contract import Contract
from data_contracts.dataset import DatasetWriter, batches, metadata, parts, read, rows
from data_contracts.registry import contract

META = {"posttrain.tokenizer": "sha256:t", "note": "free"}
Rows = list[dict[str, Any]]


def write(folder: Path, data: Rows | pa.Table, name: str = "rollouts/1", **options: Any) -> Path:
    with DatasetWriter(folder, name, META, **options) as writer:
        writer.write(data)
    return folder


def test_what_is_written_is_read(tmp_path: Path, rows_of: dict[str, Rows]) -> None:
    for name, data in rows_of.items():
        folder = write(tmp_path / name.replace("/", "-"), data, name)
        table = read(folder, name)
        assert table.schema.equals(contract(name).schema)
        expected = pa.Table.from_pylist(data, contract(name).schema)
        assert table.to_pylist() == expected.to_pylist()
        assert metadata(folder) == {**META, "posttrain.contract": name}
        assert rows(folder) == len(data)


def test_columns_select_and_keep_the_order_asked_for(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    folder = write(tmp_path / "d", rollouts(), rows_per_part=4)
    assert len(parts(folder)) == 3
    assert read(folder, "rollouts/1", ["step", "prompt_id"]).schema.names == ["step", "prompt_id"]
    with pytest.raises(ContractBreach, match="column rewrad: present"):
        read(folder, "rollouts/1", ["rewrad"])


def test_batches_stream_all_rows(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    folder = write(tmp_path / "d", rollouts(), rows_per_part=4)
    assert [batch.num_rows for batch in batches(folder, "rollouts/1")] == [4, 4, 4]


def test_an_empty_dataset_is_one_for_its_check_to_refuse(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", [])
    table = read(folder, "rollouts/1")
    assert table.num_rows == 0
    assert [str(breach) for breach in contract("rollouts/1").check(table)] == ["at least one row"]


def replace_part(folder: Path, table: pa.Table) -> None:
    """What another writer, or an old version of us, might have left."""
    (part,) = parts(folder)
    with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    manifest = json.loads((folder / "_manifest.json").read_text())
    manifest["parts"][0]["bytes"] = part.stat().st_size
    (folder / "_manifest.json").write_text(json.dumps(manifest))


def test_a_schema_that_differs_is_named(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    folder = write(tmp_path / "d", rollouts())
    good = read(folder, "rollouts/1")
    at = good.schema.get_field_index("logprobs")
    float64 = good.set_column(at, "logprobs", good["logprobs"].cast(pa.list_(pa.float64())))
    cases = {
        "column logprobs: present": good.drop_columns(["logprobs"]),
        "column extra: not a column of the contract": good.append_column("extra", good["step"]),
        "column logprobs: of type list<item: float> not null: found list<item: double>": float64,
        "schema metadata posttrain.tokenizer: missing": good.replace_schema_metadata(
            {"posttrain.contract": "rollouts/1"}
        ),
        "schema metadata posttrain.contract = rollouts/1: found rollouts/2": good.replace_schema_metadata(
            {**META, "posttrain.contract": "rollouts/2"}
        ),
    }
    for sentence, table in cases.items():
        replace_part(folder, table)
        with pytest.raises(ContractBreach) as caught:
            read(folder, "rollouts/1")
        assert sentence in str(caught.value)
        assert str(folder) in str(caught.value)


def test_a_dataset_of_another_contract_is_refused(tmp_path: Path, rows_of: dict[str, Rows]) -> None:
    folder = write(tmp_path / "d", rows_of["sft_examples/1"], "sft_examples/1")
    with pytest.raises(ContractBreach, match=r"column group_id: present"):
        read(folder, "rollouts/1")
    with pytest.raises(ContractBreach, match=r"a known contract: known are prompts/1, .*"):
        read(folder, "rollouts/9")


def test_torn_folders_are_refused(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    folder = write(tmp_path / "d", rollouts())
    (part,) = parts(folder)
    whole = part.read_bytes()
    part.write_bytes(whole[:-7])
    with pytest.raises(ContractBreach, match=r"whole: .* is missing or not of"):
        read(folder, "rollouts/1")
    part.write_bytes(b"x" * len(whole))
    with pytest.raises(ContractBreach, match="an Arrow file"):
        read(folder, "rollouts/1")
    part.unlink()
    with pytest.raises(ContractBreach, match="whole"):
        read(folder, "rollouts/1")
    (folder / "_manifest.json").unlink()
    with pytest.raises(ContractBreach, match="was not written to the end"):
        read(folder, "rollouts/1")


def spoiled(rows: Rows, change: dict[str, Any], *at: int) -> Rows:
    return [{**row, **change} if number in at else row for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sample": "one"}, "column sample: of type int32"),
        ({"sample": 1.5}, "column sample: of type int32: a float where an integer is expected"),
        ({"sample": 2**40}, "column sample: of type int32"),
        ({"completion_ids": [1.5, 2.0]}, "column completion_ids: of type list<item: int32>"),
        ({"logprobs": ["x"]}, "column logprobs: of type list<item: float>"),
        ({"text": 3}, "column text: of type string"),
        ({"text": None}, "column text: not null"),
        ({"surprise": 1}, "column surprise: not a column of the contract"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(
    change: dict[str, Any], sentence: str, tmp_path: Path, rollouts: Callable[..., Rows]
) -> None:
    with pytest.raises(ContractBreach) as caught:
        write(tmp_path / "d", spoiled(rollouts(), change, 1))
    assert sentence in str(caught.value)
    given = change.get("sample", 1)
    assert f"p0:0/p0:{given}" in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_no_more_than_three_misfits_are_named(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    with pytest.raises(ContractBreach) as caught:
        write(tmp_path / "d", spoiled(rollouts(), {"text": 3}, 2, 3, 5, 8))
    assert caught.value.breaches[0].rows == ("p0:0/p0:2", "p0:0/p0:3", "p1:0/p1:1")


def test_a_row_without_a_column_is_refused(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    data = rollouts()
    del data[2]["reward"]  # nullable, but to leave it out is a typing error more often than a null
    with pytest.raises(ContractBreach, match=r"column reward: present \(rows p0:0/p0:2\)"):
        write(tmp_path / "d", data)


def test_unknown_keys_of_messages_are_refused(tmp_path: Path, rows_of: dict[str, Rows]) -> None:
    data = spoiled(rows_of["prompts/1"], {"messages": [{"role": "user", "content": "x", "tool": "y"}]}, 0)
    with pytest.raises(ContractBreach, match=r"column messages: .* keys .*tool.*\(rows p0\)"):
        write(tmp_path / "d", data, "prompts/1")


def test_tables_are_cast_where_nothing_is_lost(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    agreed: Contract = contract("rollouts/1")
    table = pa.Table.from_pylist(rollouts(), agreed.schema)
    at = table.schema.get_field_index("sample")
    wide = table.set_column(at, "sample", table["sample"].cast(pa.int64())).select(agreed.schema.names[::-1])
    assert read(write(tmp_path / "d", wide), "rollouts/1").equals(table)
    too_big = table.set_column(at, "sample", pa.array([2**40, *range(11)]))
    with pytest.raises(ContractBreach, match=r"column sample: of type int32.*\(rows p0:0/p0:1099511627776\)"):
        write(tmp_path / "e", too_big)


def test_missing_tokenizer_digest_is_refused_before_any_row(tmp_path: Path) -> None:
    with pytest.raises(ContractBreach, match=r"schema metadata posttrain.tokenizer: missing"):
        DatasetWriter(tmp_path / "d", "rollouts/1", {})


def test_nan_is_written_for_the_check_to_find(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    folder = write(tmp_path / "d", spoiled(rollouts(), {"logprobs": [math.nan, -1.0]}, 1))
    (breach,) = contract("rollouts/1").check(read(folder, "rollouts/1"))
    assert (breach.column, breach.expectation, breach.rows) == ("logprobs", "finite", ("p0:0/p0:1",))
