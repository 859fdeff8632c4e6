"""The mutation check itself: a wrong version that passes is told from one that fails, hangs or cannot run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.proof import mutations
from benchmarks.proof.mutant import Mutant

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


MUTANT = Mutant("wrong", "stages/errors.py", "OK = 0", "OK = 9")
AREAS = [mutations.Area("one", "tests/one.py", (MUTANT,)), mutations.Area("two", "tests/two.py", (MUTANT,))]


@pytest.mark.parametrize("only", [None, "one"])
@pytest.mark.parametrize("survives", [False, True])
def test_a_run_ends_with_a_summary_and_only_a_full_one_changes_the_record(
    only, survives, tmp_path, monkeypatch, capsys
):
    def verdicts(jobs, clean_s):
        for area, mutant in jobs:
            lives = mutant is None or (survives and area.name == "one")
            outcome = mutations.Outcome.SURVIVED if lives else mutations.Outcome.KILLED
            yield mutations.Verdict(area.name, mutant.name if mutant else "", outcome, "", 1.0, "")

    monkeypatch.setattr(mutations, "RESULTS", tmp_path / "mutations.json")
    monkeypatch.setattr(mutations, "_preload", lambda: None)
    monkeypatch.setattr(mutations, "areas", lambda only: AREAS[:1] if only else AREAS)
    monkeypatch.setattr(mutations, "_verdicts", verdicts)
    assert mutations.run(only) == int(survives)
    *printed, summary = capsys.readouterr().out.splitlines()
    count = 1 if only else 2
    assert summary.startswith(f"{count} mutants in {count} areas: ")
    assert ("1 SURVIVED" in summary) == ("not killed: one: wrong" in printed) == survives
    assert len(printed) == 2 * count + survives  # of each area's own code, of each mutant, of each survivor
    assert mutations.RESULTS.exists() == (only is None)
    if only is None:
        rows = json.loads(mutations.RESULTS.read_text())["mutants"]
        assert [row["area"] for row in rows] == ["one", "two"]


@pytest.mark.slow
def test_survived_killed_broken_and_hanging_are_told_apart() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, text=True, check=True)
    unmutated, equivalent, wrong, not_python, hangs = json.loads(done.stdout.splitlines()[-1])
    assert unmutated == ["SURVIVED", ""] and equivalent == ["SURVIVED", ""]
    assert wrong[0] == "killed" and wrong[1].startswith("tests/benchmarks/test_quantised.py::test_")
    assert not_python[0] == "BROKEN"
    assert hangs[0] == "killed (timeout)"
