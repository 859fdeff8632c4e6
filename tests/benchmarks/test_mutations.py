"""The mutation check itself: a wrong version that passes is told from one that fails, hangs or cannot run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = """
import json
from benchmarks.proof import mutations
from benchmarks.proof.mutant import Mutant

FILE, OLD = "benchmarks/proof/quantised.py", "INT8_MAX = 127.0"
area = mutations.Area("own", "tests/benchmarks/test_quantised.py", ())
wrong = [
    None,
    Mutant("equivalent", FILE, OLD, OLD + "  # the same"),
    Mutant("wrong", FILE, OLD, "INT8_MAX = 128.0"),
    Mutant("not python", FILE, OLD, OLD + "("),
    Mutant("hangs", FILE, "    rows, columns = weights_RC.shape", "    while True: pass"),
]
mutations.HANGS_AFTER_S = 15.0
mutations._preload()
found = mutations._verdicts([(area, mutant) for mutant in wrong], {"own": 0.0})
print(json.dumps([[verdict.outcome, verdict.killed_by] for verdict in found]))
"""


@pytest.mark.slow
def test_survived_killed_broken_and_hanging_are_told_apart() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, text=True, check=True)
    unmutated, equivalent, wrong, not_python, hangs = json.loads(done.stdout.splitlines()[-1])
    assert unmutated == ["SURVIVED", ""] and equivalent == ["SURVIVED", ""]
    assert wrong[0] == "killed" and wrong[1].startswith("tests/benchmarks/test_quantised.py::test_")
    assert not_python[0] == "BROKEN"
    assert hangs[0] == "killed (timeout)"
