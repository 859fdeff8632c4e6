"""Inputs that exchange tokens agree before a stage's process is started."""

import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from data_contracts.breach import ContractBreach
from data_contracts.checkpoint import tokenizer_digest
from data_contracts.dataset import DatasetWriter
from stages.declaration import Kind
from stages.opd.params import STAGE as OPD
from stages.opd.params import OpdParams
from stages.rl.params import STAGE as RL
from stages.rl.params import RlParams
from stages.spec import Runtime
from tasks.execute import Request, execute
from tasks.store.digest import digest
from tasks.store.home import Home
from tasks.store.manifest import Manifest, OutputRecord, Outputs, Provenance, Ref
from tasks.store.objects import Store, file_records

PROVENANCE = Provenance(run_id="run", node="maker")


def stored(store: Store, folder: Path, kind: Kind, contract: str | None = None) -> Ref:
    """The folder as the one output of a result."""
    key = hashlib.sha256(folder.name.encode()).hexdigest()
    work = store.work("made", key)
    shutil.copytree(folder, work / "out" / "it")
    record = OutputRecord(
        kind=kind, contract=contract, digest=digest(kind, folder), files=file_records(folder)
    )
    now = datetime.now(UTC)
    manifest = Manifest(
        stage="made",
        version=1,
        key=key,
        params={},
        inputs={},
        outputs={"it": record},
        attempts=1,
        seconds=1.0,
        started=now,
        ended=now,
        runtime={},
        provenance=PROVENANCE,
    )
    store.commit(manifest, work / "out", work)
    return manifest.refs()["it"]


def elites(folder: Path, tokenizer: Path) -> Path:
    row = {
        "prompt_id": "p",
        "capability": "count",
        "prompt_ids": [1, 2],
        "completion_ids": [3, 1],
        "text": "text",
        "signature": "s",
        "reading": "a",
        "reward": 1.0,
        "logprobs": [-0.5, -0.5],
        "temperature": 1.0,
        "base_logprob": -1.0,
        "count": 1,
        "base_digest": "sha256:0",
        "rl_steps": 0,
        "signature_version": "1",
    }
    with DatasetWriter(
        folder, "elite_archive/1", {"posttrain.tokenizer": tokenizer_digest(tokenizer)}
    ) as writer:
        writer.write([row])
    return folder


def questions(folder: Path) -> Path:
    row = {
        "id": "p",
        "domain": "sql",
        "capability": "count",
        "text": "how many?",
        "messages": [{"role": "user", "content": "how many?"}],
        "payload": "{}",
        "split": "train",
        "answer_class": "open",
        "ambiguity": "",
        "readings": 1,
    }
    with DatasetWriter(folder, "prompts/1", {}) as writer:
        writer.write([row])
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Home(tmp_path / "home"))


@pytest.fixture
def given(store, disk, tmp_path) -> Outputs:
    """What opd and rl are given, of one tokenizer; and a checkpoint and an archive of another."""
    policy = disk.checkpoint("policy")
    teacher = disk.checkpoint("teacher", weight=2.0)
    stranger = disk.checkpoint("stranger", tokens={"b": 2, "a": 3})
    domain = tmp_path / "a_domain"
    domain.mkdir()
    (domain / "domain.json").write_text('{"name": "sql"}')
    return {
        **{f.name: stored(store, f, Kind.CHECKPOINT) for f in (policy, teacher, stranger)},
        "archive": stored(store, elites(tmp_path / "archive", policy), Kind.DATASET, "elite_archive/1"),
        "strange archive": stored(
            store, elites(tmp_path / "strange archive", stranger), Kind.DATASET, "elite_archive/1"
        ),
        "prompts": stored(store, questions(tmp_path / "questions"), Kind.DATASET, "prompts/1"),
        "domain": stored(store, domain, Kind.FILES),
    }


def refused(store: Store, declared, params, node: str, inputs: Outputs) -> str:
    request = Request(node, declared, params, inputs, Runtime(threads=1), PROVENANCE)
    events = []
    with pytest.raises(ContractBreach) as breach:
        execute(store, request, on_event=events.append)
    assert events == [] and not store.work(declared.name, request.key).exists()  # nothing was begun
    return str(breach.value)


def test_a_teacher_of_another_tokenizer_is_refused_before_any_work(store, given):
    known = {name: given[name] for name in ("policy", "prompts", "domain")}
    said = refused(store, OPD, OpdParams(), "opd", {**known, "teacher": given["stranger"]})
    assert "stage opd: breaks the agreement of its inputs" in said
    assert "column tokenizer_digest: equal to that of input policy" in said and "input teacher has" in said


def test_an_archive_of_another_tokenizer_is_refused_before_any_work(store, given):
    known = {name: given[name] for name in ("policy", "prompts", "domain")}
    said = refused(store, RL, RlParams(), "rl.again", {**known, "archive": given["strange archive"]})
    assert "stage rl.again" in said and "column posttrain.tokenizer" in said and "input archive has" in said
