"""Parts that no saved step lists do not exist, whatever a killed attempt left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from data_contracts.breach import ContractBreach
from data_contracts.dataset import read
from stages.part_buffer import PartBuffer

PROJECT = Path(__file__).parents[2]
CONTRACT = "sft_examples/1"
METADATA = {"posttrain.tokenizer": "sha256:" + "0" * 64}


def rows(*names: str) -> list[dict[str, object]]:
    return [{"prompt_id": n, "capability": "c", "tokens": [1, 2], "loss_mask": [0, 1]} for n in names]


def written(buffer: PartBuffer, final: Path) -> list[str]:
    count = buffer.write(final, METADATA)
    names: list[str] = read(final, CONTRACT).column("prompt_id").to_pylist()
    assert count == len(names)
    return names


def test_rows_come_back_in_the_order_they_were_gathered(tmp_path):
    buffer = PartBuffer(tmp_path / "parts", CONTRACT)
    for part in (rows("b", "a"), [], rows("c")):
        buffer.append(part)
    assert len(list((tmp_path / "parts").iterdir())) == 2  # nothing makes no part
    assert written(buffer, tmp_path / "out") == ["b", "a", "c"]


def test_a_fresh_attempt_has_what_the_saved_step_lists_and_no_more(tmp_path):
    """A real process is killed with a part appended after the save, and another torn."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_part_buffer import CONTRACT, rows
from stages.part_buffer import PartBuffer
root = Path({str(tmp_path)!r})
buffer = PartBuffer(root / "parts", CONTRACT)
buffer.append(rows("a"))
buffer.append(rows("b"))
(root / "step").mkdir()
buffer.save(root / "step")
buffer.append(rows("lost"))
whole = next((root / "parts").iterdir()).read_bytes()
(root / "parts" / "torn.arrow").write_bytes(whole[: len(whole) // 2])
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    died = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60)
    assert died.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "parts").iterdir())) == 4
    resumed = PartBuffer(tmp_path / "parts", CONTRACT)
    resumed.load(tmp_path / "step")
    resumed.append(rows("c"))
    assert written(resumed, tmp_path / "out") == ["a", "b", "c"]
    assert written(PartBuffer(tmp_path / "parts", CONTRACT), tmp_path / "none") == []


def test_two_buffers_save_into_one_step(tmp_path):
    one, other = (PartBuffer(tmp_path / name, CONTRACT) for name in ("one", "other"))
    one.append(rows("1"))
    other.append(rows("2"))
    for buffer in (one, other):
        buffer.save(tmp_path)
    again = PartBuffer(tmp_path / "other", CONTRACT)
    again.load(tmp_path)
    assert written(again, tmp_path / "out") == ["2"]


def test_only_the_last_parts_are_kept_also_over_a_resume(tmp_path):
    buffer = PartBuffer(tmp_path / "parts", CONTRACT)
    for name in "abc":
        buffer.append(rows(name))
        buffer.keep_last(2)
    buffer.save(tmp_path)
    again = PartBuffer(tmp_path / "parts", CONTRACT)
    again.load(tmp_path)
    again.append(rows("d"))
    again.keep_last(2)
    assert written(again, tmp_path / "out") == ["c", "d"]


def test_a_row_that_does_not_fit_is_named_and_leaves_no_part(tmp_path):
    buffer = PartBuffer(tmp_path / "parts", CONTRACT)
    bad = [*rows("good"), {**rows("bad")[0], "tokens": ["x"]}]
    with pytest.raises(ContractBreach, match=r"tokens.*bad"):
        buffer.append(bad)
    with pytest.raises(ContractBreach, match=r"capability.*worse"):
        buffer.append([{**rows("worse")[0], "capability": None}])
    assert list((tmp_path / "parts").iterdir()) == []
    assert written(buffer, tmp_path / "out") == []
