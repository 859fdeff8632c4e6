"""What a stage does wrong is told in one sentence, and nothing of it is committed."""

import json
import sys
from dataclasses import replace

import pytest
from toy_stages.counter import params
from toy_stages.counter.params import CounterParams

from data_contracts.breach import ContractBreach
from stages.declaration import FILES
from stages.errors import ExitCode, PosttrainError
from tasks import runs
from tasks.process.attempt import StageFailed
from tasks.stage import stage
from tasks.store.objects import Store


def one() -> None:
    stage("one", CounterParams(steps=2))


def refused(toys, kind: type[Exception]) -> Exception:
    """The error of a run that must commit nothing and be recorded as failed with the same sentence."""
    with pytest.raises(kind) as error:
        toys.go(one)
    assert list(Store(toys.home).manifests()) == []
    record = runs.latest(toys.home).node("one")
    assert record.state == "failed"
    assert record.message == str(error.value)
    assert record.attempts == 1
    return error.value


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        ("scribble", "one wrote 'unknown', which is none of its outputs"),
        ("link", "one wrote a link"),
        ("exit", "one failed: its process ended with code 9"),
        ("starve", "one failed: OSError: [Errno 28] No space left on device"),
    ],
)
def test_a_stage_that_breaks_its_word_fails(toys, monkeypatch, deed, sentence):
    monkeypatch.setenv("TOY_DEED", f"{deed}@1")
    assert sentence in str(refused(toys, StageFailed))


def test_a_stage_that_finds_a_breach_is_a_breach_here(toys, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "breach@1")
    error = refused(toys, ContractBreach)
    assert str(error) == "one: breaks toys/1: column sum: is a number (rows row 3)"
    assert error.exit_code == ExitCode.CONTRACT_BREACHED


def test_a_missing_output_is_named(toys, monkeypatch):

    more = replace(params.STAGE, outputs={**params.STAGE.outputs, "proof": FILES})
    monkeypatch.setattr(params, "STAGE", more)
    assert "one wrote nothing to its output 'proof'" in str(refused(toys, StageFailed))


def test_a_guard_keeps_its_exit_code(toys, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "refuse@1")
    error = refused(toys, PosttrainError)
    assert error.exit_code == ExitCode.FAILED
    assert "the toy refuses to count further" in str(error)


def test_a_manifest_tells_where_a_result_came_from(toys):
    run = toys.go(one, recipe={"one": {"steps": 2}})
    (made,) = Store(toys.home).manifests()
    assert made.params == {"seed": 0, "steps": 2, "modulus": 1000003}
    assert made.runtime["threads"] == 1
    assert (made.attempts, made.version, made.inputs) == (1, 1, {})
    assert 0 < made.seconds < 60
    origin = made.provenance
    assert (origin.run_id, origin.node, origin.flow) == (run.id, "one", "toy")
    assert origin.recipe_digest.startswith("sha256:") and origin.source_digest.startswith("sha256:")
    assert origin.argv == sys.argv
    record = run.node("one")
    assert record.digest == made.outputs["sum"].digest == made.digest
    assert record.outputs == {name: output.digest for name, output in made.outputs.items()}
    assert (record.step, record.total, record.unit) == (2, 2, "steps")


def test_a_notice_reaches_the_ledger(toys, monkeypatch):
    monkeypatch.setenv("TOY_DEED", "notice@1")
    run = toys.go(one)
    assert run.node("one").notices == ["the toy fell back"]
    assert json.loads((run.folder / "nodes" / "one.json").read_text())["notices"] == ["the toy fell back"]
