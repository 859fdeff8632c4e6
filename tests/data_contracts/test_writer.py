"""The writer against real kills: nothing partial is visible, and nothing of a dead writer stays."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_contracts.dataset import DatasetWriter, parts, read

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
META = {"posttrain.tokenizer": "sha256:t"}
Rows = list[dict[str, Any]]


def test_a_part_is_made_when_enough_rows_have_come(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    rows = rollouts(5, 4)
    with DatasetWriter(tmp_path / "d", "rollouts/1", META, rows_per_part=6) as writer:
        for group in range(5):
            writer.write(rows[group * 4 : group * 4 + 4])
    assert len(parts(tmp_path / "d")) == 3  # 8, 8 and 4 rows
    assert read(tmp_path / "d", "rollouts/1")["text"].to_pylist() == [row["text"] for row in rows]


def test_an_error_leaves_nothing_behind(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        DatasetWriter(tmp_path / "d", "rollouts/1", META, rows_per_part=1) as writer,
    ):
        writer.write(rollouts())
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_of_an_earlier_attempt_is_replaced_whole(
    tmp_path: Path, rollouts: Callable[..., Rows]
) -> None:
    for groups in (3, 2):
        with DatasetWriter(tmp_path / "d", "rollouts/1", META, rows_per_part=4) as writer:
            writer.write(rollouts(groups))
        assert [path.name for path in tmp_path.iterdir()] == ["d"]
        assert read(tmp_path / "d", "rollouts/1").num_rows == groups * 4
        assert len(list((tmp_path / "d").glob("part-*"))) == len(parts(tmp_path / "d"))


def test_what_is_no_dataset_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.tex").touch()
    with (
        pytest.raises(FileExistsError, match="holds something else than a dataset"),
        DatasetWriter(tmp_path / "d", "rollouts/1", META),
    ):
        raise AssertionError("unreachable")


def test_a_crash_at_any_file_operation_leaves_all_or_nothing(tmp_path: Path) -> None:
    script = Path(__file__).with_name("crash_everywhere.py")
    command = [sys.executable, str(script), str(tmp_path)]
    seen = json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True).stdout)
    assert seen["kills"] == 8  # the hidden folder, three parts, manifest, folder, rename, the name's folder
    assert seen["written_again"] == [True] * seen["kills"]
    # visible only between the rename and the flush that follows, and then whole
    assert seen["visible"] == {str(seen["kills"] - 1): True}
