"""decision.json from evaluation datasets on disk."""

import json

import pytest

from data_contracts.dataset import DatasetWriter
from stages.context import StageContext
from stages.declaration import declaration
from stages.promote.params import PromoteParams
from stages.promote.stage import run
from stages.spec import Runtime, StageSpec


def rows(rates, distinct):
    return [
        {
            "prompt_id": f"{capability}-{i}",
            "capability": capability,
            "split": "test-compositions" if capability == "unseen" else "test-values",
            "ambiguity": "",
            "k": k,
            "n": 400,
            "correct": round(400 * rate),
            "unscorable": 0,
            "strategies": 4,
            "pass_at_k": rate if k == 1 else 1.0,
            "distinct_at_k": rate if k == 1 else distinct,
            "both_at_k": None,
        }
        for capability, own in rates.items()
        for i, rate in enumerate(own)
        for k in (1, 8)
    ]


BASE = rows({"count": [0.3, 0.4, 0.35], "unseen": [0.2, 0.3, 0.25]}, 3.0)
SFT = rows({"count": [0.4, 0.5, 0.45], "unseen": [0.2, 0.3, 0.25]}, 2.0)
WIDE = rows({"count": [0.8, 0.9, 0.85], "unseen": [0.4, 0.5, 0.45]}, 3.2)
NARROW = rows({"count": [0.9, 0.9, 0.95], "unseen": [0.0025, 0.01, 0.02]}, 1.0)


@pytest.fixture
def decide(tmp_path):
    def made(**evaluations):
        inputs = {"policy": tmp_path / "policy"}
        for name, content in evaluations.items():
            inputs[name] = tmp_path / name
            with DatasetWriter(inputs[name], "evaluation/1", {}) as writer:
                writer.write(content)
        spec = StageSpec(
            stage="promote",
            node="promote",
            attempt=1,
            params={},
            runtime=Runtime(),
            inputs=inputs,
            work=tmp_path / "work",
            out=tmp_path / "out",
        )
        run(StageContext(spec, PromoteParams()))
        return json.loads((tmp_path / "out" / "decision" / "decision.json").read_text())

    return made


def test_a_wide_model_is_promoted_with_its_matrix(decide):
    decision = decide(before=BASE, sft=SFT, after=WIDE)
    assert decision["promoted"] is True
    assert decision["matrix"] == {
        "count": {"base": pytest.approx(0.35), "sft": pytest.approx(0.45), "rl": pytest.approx(0.85)},
        "unseen": {"base": pytest.approx(0.25), "sft": pytest.approx(0.25), "rl": pytest.approx(0.45)},
    }
    assert decision["prompts"]["unseen"] == {"splits": ["test-compositions"], "prompts": 3}
    assert decision["checkpoints"]["rl"]["test-values"]["distinct@8"] == pytest.approx(3.2)
    assert decision["checkpoints"]["base"]["overall"]["pass@1"] == pytest.approx(0.3)


def test_a_collapsed_model_is_not_promoted_and_the_numbers_say_why(decide):
    decision = decide(before=BASE, after=NARROW)
    assert decision["promoted"] is False
    failed = {gate["name"]: gate for gate in decision["gates"] if not gate["holds"]}
    assert set(failed) == {
        "gain",
        "width test-values",
        "accuracy test-compositions",
        "capability unseen",
    }  # the gain of some prompts is not beyond noise
    assert failed["width test-values"]["observed"] == pytest.approx(-2.0)
    assert all(set(gate) == {"name", "holds", "observed", "limit", "sentence"} for gate in decision["gates"])


def test_evaluations_of_other_prompts_decide_against_and_do_not_raise(decide):
    other = [row | {"prompt_id": "x" + row["prompt_id"]} for row in WIDE]
    decision = decide(before=BASE, after=other)
    assert decision["promoted"] is False
    assert [gate["observed"] for gate in decision["gates"] if gate["name"] == "gain"] == [None]


def test_declaration_needs_the_first_and_the_last_evaluation():
    stage = declaration("promote")
    assert set(stage.inputs) - stage.optional == {"policy", "before", "after"}
