"""Objects appear whole, by one rename, or not at all."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stages.declaration import Kind
from tasks.execute import DiskFull, disk_full_explained
from tasks.store.home import Home
from tasks.store.manifest import Manifest, OutputRecord, Provenance
from tasks.store.objects import Store, StoreDamaged, file_records

PROJECT = Path(__file__).parents[3]
KEY = "0" * 64
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # sha256 of "hello"


@pytest.fixture
def store(home) -> Store:
    return Store(home)


def manifest(outputs: Path, node: str = "one", hour: int = 1) -> Manifest:
    when = datetime(2026, 1, 1, hour, tzinfo=UTC)
    records = {
        name: OutputRecord(kind=Kind.FILES, digest=f"sha256:{name}", files=file_records(outputs / name))
        for name in ("sum", "trace")
    }
    return Manifest(
        stage="toy",
        version=1,
        key=KEY,
        params={"steps": 3},
        inputs={},
        outputs=records,
        attempts=1,
        seconds=1.5,
        started=when,
        ended=when,
        runtime={},
        provenance=Provenance(run_id="run", node=node),
    )


def written(store: Store, text: str = "hello") -> Path:
    """A work folder whose outputs are written."""
    work = store.work("toy", KEY)
    for name in ("sum", "trace"):
        (work / "out" / name).mkdir(parents=True)
        (work / "out" / name / "a.txt").write_text(text)
    (work / "reports").mkdir()
    (work / "reports" / "contract-sum.json").write_text("{}")
    for name in ("metrics.jsonl", "log.txt", "attempt.json"):
        (work / name).write_text(f"{name}\n")
    return work


def commit(store: Store, text: str = "hello", **facts) -> Manifest:
    work = written(store, text)
    made = manifest(work / "out", **facts)
    store.commit(made, work / "out", work)
    return made


def test_a_committed_result_is_found_whole_and_its_work_is_gone(store):
    made = commit(store)
    assert store.lookup("toy", KEY) == made
    folder = store.folder("toy", KEY)
    kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert kept == [
        "log.txt",
        "manifest.json",
        "metrics.jsonl",
        "outputs/sum/a.txt",
        "outputs/trace/a.txt",
        "reports/contract-sum.json",
    ]
    assert not store.work("toy", KEY).exists()
    assert made.outputs["sum"].files[0].model_dump() == {"path": "a.txt", "bytes": 5, "sha256": HELLO}


def test_references_lead_to_outputs(store):
    refs = commit(store).refs()
    assert list(refs) == ["sum", "trace"]
    assert (store.path(refs["trace"]) / "a.txt").read_text() == "hello"
    assert refs["sum"].known
    assert len(refs["sum"].model_dump_json()) < 300
    assert commit(store).digest == "sha256:sum"


def test_a_reference_to_what_is_gone_is_an_error(store):
    ref = commit(store).refs()["sum"].model_copy(update={"key": "1" * 64})
    with pytest.raises(StoreDamaged, match="toy sum sha256:sum is not in the store"):
        store.path(ref)


def test_nothing_is_found_where_nothing_is(store):
    assert store.lookup("toy", KEY) is None
    assert list(store.manifests()) == []
    assert store.latest("toy", "one") is None


def test_a_second_result_under_a_key_supersedes_the_first(store):
    commit(store, "hello", hour=1)
    second = commit(store, "world", hour=2)
    assert list(store.manifests()) == [second]
    (old,) = store.folder("toy", KEY).parent.glob("*.old-*")
    assert (old / "outputs" / "sum" / "a.txt").read_text() == "hello"
    assert (store.folder("toy", KEY) / "outputs" / "sum" / "a.txt").read_text() == "world"


def test_the_latest_result_of_a_node_is_told_by_time(store):
    commit(store, node="one", hour=3)
    assert store.latest("toy", "one").ended.hour == 3
    assert store.latest("toy", "two") is None


def test_a_manifest_that_is_none_is_named(store):
    commit(store)
    (store.folder("toy", KEY) / "manifest.json").write_text('{"stage": "toy"')
    with pytest.raises(StoreDamaged, match="is not a manifest"):
        store.lookup("toy", KEY)


CRASH = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import test_objects as own
from tasks.store.home import Home
store = own.Store(Home(Path(sys.argv[1])))
work = own.written(store)
made = own.manifest(work / "out")
left = int(sys.argv[2])
def counted(real):
    def operation(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return operation
os.rename, os.replace, os.fsync = counted(os.rename), counted(os.replace), counted(os.fsync)
store.commit(made, work / "out", work)
"""


@pytest.mark.parametrize("boundary", [1, 2, 3, 4, 5, 12, 16])
def test_a_crash_before_the_last_rename_is_invisible_and_can_be_made_good(store, home, boundary):
    """SIGKILL at the n-th rename, replacement or flush of a commit."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])}
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(home.root), str(boundary)], env=environment, timeout=60
    )
    assert died.returncode == -signal.SIGKILL
    assert store.lookup("toy", KEY) is None
    assert list(store.manifests()) == []
    assert not store.folder("toy", KEY).exists()
    subprocess.run(["rm", "-r", str(store.work("toy", KEY))], check=True)
    assert commit(store) == store.lookup("toy", KEY)


def test_a_full_disk_leaves_nothing_and_says_what_to_do(store, home):
    """A limit on the size of files stands for the disk: the manifest does not fit."""
    program = f"""
import resource, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import test_objects as own
store = own.Store(own.Home(Path(sys.argv[1])))
work = own.written(store)
made = own.manifest(work / "out")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    with own.disk_full_explained("one", store.root):
        store.commit(made, work / "out", work)
except own.DiskFull as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", program, str(home.root)],
        env=environment,
        timeout=60,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no space left" in done.stdout and "nothing was committed" in done.stdout
    assert list(home.store.glob("objects/**/*")) == []
    assert [path.name for path in store.work("toy", KEY).rglob("*manifest*")] == []


def test_other_errors_of_the_system_are_not_called_a_full_disk():
    with pytest.raises(PermissionError), disk_full_explained("one", Path("/")):
        raise PermissionError(13, "denied")
    assert issubclass(DiskFull, Exception)


def test_the_home_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("POSTTRAIN_HOME", str(tmp_path / "there"))
    assert Home.from_environment().store == tmp_path / "there" / "store"
    monkeypatch.delenv("POSTTRAIN_HOME")
    monkeypatch.chdir(tmp_path)
    assert Home.from_environment().runs == tmp_path / ".posttrain" / "runs"
