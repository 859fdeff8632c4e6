"""Run by test_writer.py: kill a writer before each of its file operations in turn; print what was seen.

A process of its own, because it forks, which a test process with threads had better not.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_contracts.dataset import DatasetWriter
from stages.declaration import Kind
from tasks.store.digest import digest

OPERATIONS = ("rename", "fsync", "mkdir")


def write(final: Path) -> None:
    with DatasetWriter(final, "sft_examples/1", {"posttrain.tokenizer": "t"}, rows_per_part=4) as writer:
        for number in range(12):
            row = {"prompt_id": f"p{number}", "capability": "c", "tokens": [number], "loss_mask": [1]}
            writer.write([row])


def killed_before(step: int, final: Path) -> bool:
    """Write in a child that dies before its `step`-th file operation. False if it has fewer."""
    child = os.fork()
    if child == 0:
        countdown = [step]
        for name in OPERATIONS:
            setattr(os, name, deadly(getattr(os, name), countdown))
        write(final)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def deadly(real: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if countdown[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        countdown[0] -= 1
        return real(*args, **kwargs)

    return call


def main(root: Path) -> None:
    write(root / "whole")
    whole = digest(Kind.DATASET, root / "whole")
    step, visible, written_again = 0, {}, []
    while killed_before(step, final := root / f"d{step}"):
        if final.exists():
            visible[step] = digest(Kind.DATASET, final) == whole
        write(final)
        written_again.append(digest(Kind.DATASET, final) == whole)
        step += 1
    print(json.dumps({"kills": step, "visible": visible, "written_again": written_again}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
