"""Equal content has equal digests however it is stored; any change of content changes it."""

import itertools
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_contracts.dataset import DatasetWriter
from stages.declaration import Kind
from tasks.store.digest import digest, table_digest

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("count", pa.int32()),
        pa.field("ids", pa.list_(pa.int32())),
        pa.field("score", pa.float32()),
        pa.field("done", pa.bool_()),
        pa.field("turns", pa.list_(pa.struct([("role", pa.string()), ("weights", pa.list_(pa.float64()))]))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"name": "a", "count": 1, "ids": [1, 2], "score": math.nan, "done": True, "turns": []},
    {"name": None, "count": None, "ids": None, "score": None, "done": None, "turns": None},
    {
        "name": "ü",
        "count": 0,
        "ids": [],
        "score": 0.0,
        "done": False,
        "turns": [{"role": "user", "weights": [0.5]}, {"role": None, "weights": None}],
    },
    {"name": "", "count": -3, "ids": [3, 4, 5], "score": -1.5, "done": True, "turns": []},
    {
        "name": "a",
        "count": 7,
        "ids": [6],
        "score": 2.0,
        "done": True,
        "turns": [{"role": "x", "weights": []}],
    },
]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def other_nan() -> pa.Table:
    """The same NaN with another payload, and 0.0 as -0.0."""
    payload = struct.unpack("<f", struct.pack("<I", 0x7FC0_1234))[0]
    values = np.array([payload, 0, -0.0, -1.5, 2.0], np.float32)
    assert np.signbit(values[2])
    return with_column(TABLE, "score", pa.array(values, mask=np.array([0, 1, 0, 0, 0], bool)))


def through_parquet(tmp_path: Path) -> pa.Table:
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=2)
    return pq.read_table(tmp_path / "t.parquet")


def test_representation_leaves_no_trace(tmp_path: Path) -> None:
    large_turns = pa.large_list(
        pa.struct([("role", pa.large_string()), ("weights", pa.large_list(pa.float64()))])
    )
    variants = {
        "chunks": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 3), TABLE.slice(4)]),
        "copied chunks": pa.concat_tables([TABLE.slice(0, 3), TABLE.slice(3)]).combine_chunks(),
        "a slice of more": pa.concat_tables([TABLE, TABLE]).combine_chunks().slice(5),
        "an empty chunk": pa.concat_tables([TABLE.slice(0, 0), TABLE]),
        "dictionary": with_column(TABLE, "name", TABLE["name"].dictionary_encode()),
        "large string": with_column(TABLE, "name", TABLE["name"].cast(pa.large_string())),
        "string view": with_column(TABLE, "name", TABLE["name"].cast(pa.string_view())),
        "large list": with_column(TABLE, "ids", TABLE["ids"].cast(pa.large_list(pa.int32()))),
        "large nested": with_column(TABLE, "turns", TABLE["turns"].cast(large_turns)),
        "metadata": TABLE.replace_schema_metadata({"made": "today"}),
        "nan payload and minus zero": other_nan(),
        "parquet": through_parquet(tmp_path),
    }
    expected = table_digest(TABLE)
    assert expected.startswith("sha256:")
    assert len(expected) == 71
    for name, variant in variants.items():
        assert table_digest(variant) == expected, name


def test_fixed_size_lists_are_lists() -> None:
    fixed = pa.table({"ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))})
    assert table_digest(fixed) == table_digest(
        pa.table({"ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32()))})
    )


def test_types_without_a_digest_are_refused() -> None:
    with pytest.raises(TypeError, match="no digest is defined for Arrow type map"):
        table_digest(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))}))


CHANGES: dict[str, tuple[int, dict[str, Any]]] = {
    "a value": (0, {"count": 2}),
    "null is not zero": (2, {"count": None}),
    "null is not empty text": (3, {"name": None}),
    "null is not an empty list": (2, {"ids": None}),
    "null is not false": (2, {"done": None}),
    "NaN is not null": (0, {"score": None}),
    "a nested value": (2, {"turns": [{"role": "user", "weights": [0.25]}, {"role": None, "weights": None}]}),
    "a nested null": (2, {"turns": [{"role": "user", "weights": [0.5]}, {"role": "", "weights": None}]}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_content_changes_it(name: str) -> None:
    at, change = CHANGES[name]
    rows = [{**row, **change} if number == at else row for number, row in enumerate(ROWS)]
    assert table_digest(pa.Table.from_pylist(rows, SCHEMA)) != table_digest(TABLE)


def test_order_names_and_boundaries_of_lists_and_texts_count() -> None:
    distinct = [
        TABLE,
        TABLE.take(pa.array([1, 0, 2, 3, 4])),
        TABLE.select(SCHEMA.names[::-1]),
        TABLE.rename_columns(["nom", *SCHEMA.names[1:]]),
        TABLE.slice(0, 4),
        pa.table({"t": ["ab", "c"]}),
        pa.table({"t": ["a", "bc"]}),
        pa.table({"t": pa.array([[1, 2], [3]])}),
        pa.table({"t": pa.array([[1], [2, 3]])}),
        pa.table({"t": pa.array([1, 2], pa.int32())}),
        pa.table({"t": pa.array([1, 2], pa.int64())}),
    ]
    assert len({table_digest(table) for table in distinct}) == len(distinct)


row = st.fixed_dictionaries(
    {
        "name": st.none() | st.text(max_size=4),
        "count": st.none() | st.integers(-(2**31), 2**31 - 1),
        "ids": st.none() | st.lists(st.integers(0, 9), max_size=3),
        "score": st.none() | st.floats(width=32),
        "done": st.none() | st.booleans(),
        "turns": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {
                    "role": st.none() | st.text(max_size=2),
                    "weights": st.none() | st.lists(st.floats(), max_size=2),
                }
            ),
            max_size=2,
        ),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(row, min_size=1, max_size=8), st.data())
def test_cuts_never_show_and_changes_always_do(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = pa.Table.from_pylist(rows, SCHEMA)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=4)) | {0, len(rows)})
    pieces = [whole.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
    assert table_digest(pa.concat_tables(pieces)) == table_digest(whole)
    at = data.draw(st.integers(0, len(rows) - 1))
    changed = [dict(entry) for entry in rows]
    changed[at] = {**changed[at], "ids": [*(changed[at]["ids"] or []), 10]}
    assert table_digest(pa.Table.from_pylist(changed, SCHEMA)) != table_digest(whole)


def examples(folder: Path, *, tokenizer: str = "t", note: str = "", rows: int = 20, **options: Any) -> str:
    metadata = {"posttrain.tokenizer": tokenizer, "note": note}
    with DatasetWriter(folder, "sft_examples/1", metadata, **options) as writer:
        for number in range(rows):
            ids = [number, 1, 2][: number % 3 + 1]
            writer.write(
                [{"prompt_id": f"p{number}", "capability": "c", "tokens": ids, "loss_mask": [1] * len(ids)}]
            )
    return digest(Kind.DATASET, folder)


def test_a_dataset_is_its_rows_its_contract_and_its_tokenizer(tmp_path: Path) -> None:
    expected = examples(tmp_path / "a")
    assert examples(tmp_path / "b", rows_per_part=3) == expected
    assert examples(tmp_path / "d", note="written on a Tuesday") == expected
    assert examples(tmp_path / "e", tokenizer="other") != expected
    assert examples(tmp_path / "f", rows=19) != expected
    assert examples(tmp_path / "g", rows=0) != expected


def test_files_are_paths_and_bytes(tmp_path: Path) -> None:
    def folder(name: str, files: dict[str, str]) -> str:
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
        return digest(Kind.FILES, tmp_path / name)

    expected = folder("a", {"x/1": "one", "y": "two"})
    assert folder("b", {"y": "two", "x/1": "one"}) == expected
    different = [
        folder("c", {"x/1": "two", "y": "one"}),
        folder("d", {"x": "one", "y": "two"}),
        folder("e", {"x/1": "one", "y": "two", "z": ""}),
        folder("f", {"x/1": "one"}),
    ]
    assert len({expected, *different}) == 5


def safetensors(path: Path, tensors: dict[str, np.ndarray[Any, Any]], note: str) -> None:
    """Written by hand from the format's description."""
    header: dict[str, Any] = {"__metadata__": {"note": note}}
    data = b""
    for name, values in tensors.items():
        start = len(data)
        data += values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def checkpoint(folder: Path, **change: Any) -> str:
    folder.mkdir()
    weights = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2)}
    if change.get("sharded"):
        safetensors(folder / "model-00001-of-00002.safetensors", {"b": weights["b"]}, "first")
        safetensors(folder / "model-00002-of-00002.safetensors", {"a": weights["a"]}, "second")
        places = {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    else:
        weights["a"] = weights["a"].reshape(change.get("shape", (2, 3)))
        safetensors(folder / "model.safetensors", weights, "whole")
    config = {"vocab_size": 4, "eos_token_id": 1, **change.get("config", {})}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {
        "model": {"vocab": {"x": 0}, "merges": change.get("merges", [])},
        **change.get("tokenizer", {}),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(change.get("template", "{{ x }}"))
    record = {"stages": [], "rl_steps": change.get("rl_steps", 0), "base_digest": ""}
    (folder / "training_record.json").write_text(json.dumps(record))
    return digest(Kind.CHECKPOINT, folder)


def test_a_checkpoint_is_what_it_computes_and_where_it_comes_from(tmp_path: Path) -> None:
    expected = checkpoint(tmp_path / "a")
    same = {
        "sharded": {"sharded": True},
        "version": {"config": {"transformers_version": "9"}},
        "padding": {"tokenizer": {"padding": {"strategy": "BatchLongest"}, "truncation": None}},
        "newline": {"template": "{{ x }}\n"},
    }
    for name, change in same.items():
        assert checkpoint(tmp_path / f"same-{name}", **change) == expected, name
    different = {
        "shape": {"shape": (3, 2)},
        "config": {"config": {"rope_theta": 5}},
        "tokenizer": {"tokenizer": {"model": {"vocab": {"y": 0}}}},
        "merges": {"merges": [["a", "b"]]},
        "template": {"template": "{{ y }}"},
        "record": {"rl_steps": 3},
    }
    digests = {checkpoint(tmp_path / f"other-{name}", **change) for name, change in different.items()}
    assert len(digests | {expected}) == len(different) + 1


def test_merges_are_the_same_in_both_spellings(tmp_path: Path) -> None:
    old, new = checkpoint(tmp_path / "a", merges=["a b"]), checkpoint(tmp_path / "b", merges=[["a", "b"]])
    assert old == new
