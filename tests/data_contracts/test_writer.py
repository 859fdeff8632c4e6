"""The writer against real kills: nothing partial is visible, finished parts are not lost, digests agree."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_contracts.breach import ContractBreach
from data_contracts.dataset import DatasetWriter, parts, read
from stages.declaration import Kind
from tasks.store.digest import digest

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
META = {"posttrain.tokenizer": "sha256:t"}
Rows = list[dict[str, Any]]


def test_a_write_is_never_split_between_parts(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    rows = rollouts(5, 4)
    with DatasetWriter(tmp_path / "d", "rollouts/1", META, tmp_path / "w", rows_per_part=6) as writer:
        seen = []
        for group in range(5):
            writer.write(rows[group * 4 : group * 4 + 4])
            seen.append(writer.rows_done)
        writer.flush_part()
        writer.flush_part()  # nothing to flush makes no part
        assert seen == [0, 8, 8, 16, 16]
        assert writer.rows_done == 20
    assert len(parts(tmp_path / "d")) == 3


def test_an_error_keeps_parts_and_shows_nothing(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    rows, final, work = rollouts(4, 4), tmp_path / "d", tmp_path / "w"
    with (
        pytest.raises(KeyboardInterrupt),
        DatasetWriter(final, "rollouts/1", META, work, rows_per_part=4) as writer,
    ):
        writer.write(rows[:6])
        raise KeyboardInterrupt
    assert not final.exists()
    with DatasetWriter(final, "rollouts/1", META, work, rows_per_part=4) as writer:
        assert writer.rows_done == 4  # the rest was in no part yet
        writer.write(rows[4:])
    assert read(final, "rollouts/1")["text"].to_pylist() == [row["text"] for row in rows]


def test_parts_survive_the_end_for_a_stage_killed_after_it(
    tmp_path: Path, rollouts: Callable[..., Rows]
) -> None:
    final, work = tmp_path / "d", tmp_path / "w"
    with DatasetWriter(final, "rollouts/1", META, work) as writer:
        writer.write(rollouts())
    first = digest(Kind.DATASET, final)
    for leftover in final.iterdir():  # an attempt's output folder is emptied before the next attempt
        leftover.unlink()
    with DatasetWriter(final, "rollouts/1", META, work) as writer:
        assert writer.rows_done == 12
    assert digest(Kind.DATASET, final) == first


def test_without_a_work_folder_nothing_is_left_behind(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    with (
        pytest.raises(RuntimeError),
        DatasetWriter(tmp_path / "d", "rollouts/1", META, rows_per_part=1) as writer,
    ):
        writer.write(rollouts())
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    for groups in (2, 3):  # a dataset of an earlier attempt is replaced whole
        with DatasetWriter(tmp_path / "d", "rollouts/1", META) as writer:
            writer.write(rollouts(groups))
        assert [path.name for path in tmp_path.iterdir()] == ["d"]
        assert read(tmp_path / "d", "rollouts/1").num_rows == groups * 4


def test_what_is_no_dataset_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.tex").touch()
    with (
        pytest.raises(FileExistsError, match="holds something else than a dataset"),
        DatasetWriter(tmp_path / "d", "rollouts/1", META),
    ):
        raise AssertionError("unreachable")


def test_parts_of_another_dataset_are_not_resumed(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    with (
        pytest.raises(RuntimeError),
        DatasetWriter(tmp_path / "d", "rollouts/1", META, tmp_path / "w", rows_per_part=1) as writer,
    ):
        writer.write(rollouts())
        raise RuntimeError
    other = {"posttrain.tokenizer": "sha256:other"}
    with (
        pytest.raises(ContractBreach, match="holds parts of another dataset; remove it"),
        DatasetWriter(tmp_path / "d", "rollouts/1", other, tmp_path / "w"),
    ):
        raise AssertionError("unreachable")


WRITE_SLOWLY = textwrap.dedent(
    """
    import random, sys, time
    from pathlib import Path
    from data_contracts.dataset import DatasetWriter

    final, work, pause = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    with DatasetWriter(final, "sft_examples/1", {"posttrain.tokenizer": "t"}, work, 8) as writer:
        for number in range(writer.rows_done, 60):
            rng = random.Random(number)  # a seed per row: what is sampled does not depend on where we resumed
            tokens = [rng.randrange(50) for _ in range(rng.randrange(1, 9))]
            writer.write([{"prompt_id": f"p{number}", "capability": "c", "tokens": tokens,
                           "loss_mask": [1] * len(tokens)}])
            time.sleep(pause)
    """
)


def test_a_killed_writer_resumes_to_the_same_digest(tmp_path: Path) -> None:
    def command(name: str, pause: float) -> list[str]:
        return [
            sys.executable,
            "-c",
            WRITE_SLOWLY,
            str(tmp_path / name),
            str(tmp_path / f"{name}.w"),
            str(pause),
        ]

    subprocess.run(command("whole", 0), check=True, env=ENVIRONMENT)
    killed = 0
    for parts_before_the_kill in (2, 5):
        with subprocess.Popen(command("killed", 0.02), env=ENVIRONMENT) as process:
            deadline = time.monotonic() + 30
            while len(list((tmp_path / "killed.w").glob("part-*"))) < parts_before_the_kill:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
        assert not (tmp_path / "killed").exists()
    subprocess.run(command("killed", 0), check=True, env=ENVIRONMENT)
    assert killed == 2
    assert read(tmp_path / "killed", "sft_examples/1").num_rows == 60
    assert digest(Kind.DATASET, tmp_path / "killed") == digest(Kind.DATASET, tmp_path / "whole")


def test_a_crash_at_any_file_operation_leaves_all_or_nothing(tmp_path: Path) -> None:
    script = Path(__file__).with_name("crash_everywhere.py")
    command = [sys.executable, str(script), str(tmp_path)]
    seen = json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True).stdout)
    assert seen["kills"] >= 15  # three parts of three operations, three links, manifest, folder, rename
    assert seen["after_resume"] == [True] * seen["kills"]
    # visible only between the rename and the flush that follows, and then whole
    assert seen["visible"] == {str(seen["kills"] - 1): True}


def test_work_on_another_file_system_is_copied(tmp_path: Path, rollouts: Callable[..., Rows]) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with (
        tempfile.TemporaryDirectory(dir=elsewhere) as work,
        DatasetWriter(tmp_path / "d", "rollouts/1", META, Path(work)) as writer,
    ):
        writer.write(rollouts())
    assert read(tmp_path / "d", "rollouts/1").num_rows == 12
