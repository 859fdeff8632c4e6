"""Do the tests notice wrong code? Every mutant of `benchmarks/proof/mutants` against the tests of its area.

A mutant is applied to a copy of the repository, and its area's tests run there until the first failure. It
is killed when a test fails, or when the tests hang; it SURVIVED when they all pass; it is BROKEN when pytest
could not run them at all, which proves nothing. Each run is a fork of this process, which has imported torch,
pytest and hypothesis but nothing of the repository.
"""

import gc
import importlib
import json
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from benchmarks import proof
from benchmarks.proof.mutant import Mutant
from benchmarks.provenance import provenance

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "mutations.json"
COPIED = ("stages", "data_contracts", "benchmarks", "tests")
OF_REPOSITORY = ("stages", "data_contracts", "benchmarks", "tests", "tasks", "flows")
ALREADY_IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # on purpose, below
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "--tb=short", "--hypothesis-seed=0", "-W", ALREADY_IMPORTED)
PRELOADED = ("torch", "pytest", "hypothesis.strategies", "transformers.models.llama.modeling_llama")
WORKERS = 2
HANGS_AFTER_S = 60.0
HANGS_AFTER_RUNS = 5  # of the area's unmutated tests, so that a busy machine does not kill mutants
FOREIGN_TREE = 99  # exit code of a child whose tests imported another tree than its copy


class Outcome(StrEnum):
    KILLED = "killed"
    TIMEOUT = "killed (timeout)"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Area:
    """The mutants of one module of `benchmarks.proof.mutants`, and the tests that must kill them."""

    name: str
    tests: str
    mutants: Sequence[Mutant]


@dataclass(frozen=True)
class Verdict:
    area: str
    mutant: str  # empty for the area's own code, unmutated
    outcome: Outcome
    killed_by: str  # the first test that failed
    seconds: float
    output: str


@dataclass(frozen=True)
class _Running:
    place: int
    area: Area
    mutant: Mutant | None
    tree: Path
    began: float
    hangs_after_s: float


def areas(only: str | None = None) -> list[Area]:
    """Raises ValueError where a mutant's text is not in its file exactly once, or two have one name."""
    found = []
    for module in pkgutil.iter_modules([str(Path(proof.__path__[0]) / "mutants")]):
        if only not in (None, module.name):
            continue
        loaded = importlib.import_module(f"benchmarks.proof.mutants.{module.name}")
        found.append(Area(module.name, loaded.TESTS, loaded.MUTANTS))
    if only and not found:
        raise ValueError(f"there is no area {only!r} in benchmarks/proof/mutants")
    for area in found:
        names = [mutant.name for mutant in area.mutants]
        if len(set(names)) != len(names):
            raise ValueError(f"two mutants of area {area.name} have the same name")
        for mutant in area.mutants:
            mutant.applied((ROOT / mutant.file).read_text())
    return found


def run(only: str | None = None) -> int:
    """Print a line for each mutant and a summary; 1 where one survived or could not be run, else 0."""
    began = time.perf_counter()
    _preload()
    chosen = areas(only)
    verdicts: list[Verdict] = []
    clean_s: dict[str, float] = {}
    for verdict in _verdicts([(area, None) for area in chosen], {}):
        clean_s[verdict.area] = verdict.seconds
        if verdict.outcome is Outcome.SURVIVED:
            print(f"{'passes':16} {verdict.area}: without a mutant, {verdict.seconds:.0f} s", flush=True)
        else:
            print(
                f"{'FAILS':16} {verdict.area}: its tests fail without a mutant\n{verdict.output}", flush=True
            )
            verdicts.append(verdict)
    failing = {verdict.area for verdict in verdicts}
    jobs = [(area, mutant) for area in chosen if area.name not in failing for mutant in area.mutants]
    for verdict in _verdicts(jobs, clean_s):
        print(f"{verdict.outcome:16} {verdict.area}: {verdict.mutant}", flush=True)
        if verdict.outcome is Outcome.BROKEN:
            print(verdict.output)
        verdicts.append(verdict)
    seconds = time.perf_counter() - began
    counts = {outcome: sum(found.outcome is outcome for found in verdicts) for outcome in Outcome}
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    for verdict in verdicts:
        if verdict.outcome not in (Outcome.KILLED, Outcome.TIMEOUT) or not verdict.mutant:
            print(f"not killed: {verdict.area}: {verdict.mutant or 'its tests fail without a mutant'}")
    print(f"{len(jobs)} mutants in {len(chosen)} areas: {summary}; {seconds:.0f} s", flush=True)
    if only is None:
        _write(verdicts, seconds)
    clean = counts[Outcome.SURVIVED] == counts[Outcome.BROKEN] == 0 and not failing
    return 0 if clean else 1


def _write(verdicts: Sequence[Verdict], seconds: float) -> None:
    rows = [{key: value for key, value in asdict(found).items() if key != "output"} for found in verdicts]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({**provenance(), "seconds": round(seconds, 1), "mutants": rows}, indent=1) + "\n"
    )


def _preload() -> None:
    """What every child needs; nothing of the repository, which a child takes from its own copy."""
    for name in PRELOADED:
        importlib.import_module(name)
    import torch
    from hypothesis import Phase, settings

    torch.set_num_threads(1)
    settings.register_profile(
        "mutants", phases=(Phase.explicit, Phase.generate)
    )  # the smallest example: no use
    settings.load_profile("mutants")
    gc.collect()
    gc.freeze()  # what pytest's many collections would walk through again and again


def _verdicts(jobs: Sequence[tuple[Area, Mutant | None]], clean_s: Mapping[str, float]) -> Iterator[Verdict]:
    """In the order of the jobs, as they become known. `clean_s`: seconds of unmutated tests by area."""
    running: dict[int, _Running] = {}
    known: dict[int, Verdict] = {}
    waiting = list(enumerate(jobs))
    told = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        try:
            while told < len(jobs):
                while waiting and len(running) < WORKERS:
                    place, (area, mutant) = waiting.pop(0)
                    limit = max(HANGS_AFTER_S, HANGS_AFTER_RUNS * clean_s.get(area.name, HANGS_AFTER_S))
                    pid, started = _start(place, area, mutant, Path(scratch), limit)
                    running[pid] = started
                for pid, job in list(running.items()):
                    if (verdict := _ended(pid, job)) is not None:
                        del running[pid]
                        known[job.place] = verdict
                        shutil.rmtree(job.tree)
                while told in known:
                    yield known.pop(told)
                    told += 1
                time.sleep(0.01)
        finally:
            for pid in running:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _start(
    place: int, area: Area, mutant: Mutant | None, scratch: Path, limit: float
) -> tuple[int, _Running]:
    tree = scratch / str(place)
    tree.mkdir()
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    if mutant:
        mutant.apply(tree)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _child(tree, area.tests)
    os.setpgid(pid, pid)  # here as well as in the child: whoever comes first
    return pid, _Running(place, area, mutant, tree, time.monotonic(), limit)


def _ended(pid: int, job: _Running) -> Verdict | None:
    seconds = time.monotonic() - job.began
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done and seconds < job.hangs_after_s:
        return None
    if not done:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        outcome = Outcome.TIMEOUT
    else:
        by_code = {0: Outcome.SURVIVED, 1: Outcome.KILLED}
        outcome = by_code.get(os.waitstatus_to_exitcode(status), Outcome.BROKEN)
    output = (job.tree / "output.txt").read_text(errors="replace")
    failed = [line.split()[1] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return Verdict(
        area=job.area.name,
        mutant=job.mutant.name if job.mutant else "",
        outcome=outcome,
        killed_by=failed[0] if failed and outcome is Outcome.KILLED else "",
        seconds=round(seconds, 2),
        output=output[-3000:],
    )


def _child(tree: Path, tests: str) -> None:
    """Run the tests of this copy, and only this copy, and leave with pytest's exit code."""
    code = FOREIGN_TREE
    try:
        os.setpgid(0, 0)
        os.chdir(tree)
        with open("output.txt", "w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        os.environ["PYTHONPATH"] = str(tree)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in list(sys.modules):
            if name.split(".")[0] in OF_REPOSITORY:
                del sys.modules[name]
        importlib.invalidate_caches()
        import pytest

        code = int(pytest.main([tests, *OPTIONS]))
        for name, module in sys.modules.items():
            file = getattr(module, "__file__", None)
            if name.split(".")[0] in OF_REPOSITORY and file and not Path(file).is_relative_to(tree):
                print(f"{name} was imported from {file}, not from the copy")
                code = FOREIGN_TREE
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
