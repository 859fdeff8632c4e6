"""Plans and refusals: fast, without torch, one sentence and the right exit code."""

import resource
import subprocess
import sys

import pyarrow as pa
import pytest

from data_contracts.dataset import DatasetWriter
from data_contracts.registry import contract

FLOW = "toy_flows.counting"


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_plan_imports_no_torch_and_answers_within_seconds(posttrain):
    program = (
        "import sys; sys.argv = ['posttrain', 'plan', 'text2sql', '--profile', 'cpu']\n"
        "from flows.cli.main import main\n"
        "try: main()\n"
        "finally: print('heavy:', sorted({'torch', 'transformers', 'mlflow'} & set(sys.modules)))"
    )
    began = cpu_s()
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=posttrain.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert cpu_s() - began < 3  # of its own, whatever else this machine does
    assert found.stdout.strip().endswith("heavy: []")
    assert "evaluate.rl" in found.stdout


def test_help_is_grouped_and_quick(posttrain):
    out, _ = posttrain("--help")
    for words in (
        "Runs",
        "Models",
        "Lineage and data",
        "This machine",
        "Exit codes",
        "plan",
        "resume",
        "doctor",
    ):
        assert words in out


def test_a_plan_says_what_changed_and_where_each_value_comes_from(posttrain, finished, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("two: {steps: 9}\n")
    plan = posttrain.json("plan", FLOW, "--recipe", str(recipe), "--set", "seed=1", "--set", "one.steps=7")
    actions = {node["node"]: (node["action"], node["reason"]) for node in plan["nodes"]}
    assert actions["one"] == ("run", "steps 6 -> 7")
    assert actions["other"] == ("reuse", "")
    assert actions["two"][0] == "run" and "steps 5 -> 9" in actions["two"][1]
    sources = {setting["key"]: setting["source"] for setting in plan["settings"]}
    assert sources["two.steps"] == str(recipe)
    assert sources["one.steps"] == "--set one.steps=7"
    assert sources["runtime.threads"] == "the built-in recipe"
    assert {node["node"]: node["inputs"] for node in plan["nodes"]}["two"] == {"before": "one.sum"}


def test_the_profile_changes_the_plan(posttrain):
    settings = posttrain.json("plan", FLOW, "--profile", "ci")["settings"]
    assert {"key": "one.steps", "value": 3, "source": "profile ci"} in settings


def test_from_and_force_change_the_plan(posttrain, finished):
    forced = posttrain.json("plan", FLOW, "--set", "seed=1", "--force", "other")
    assert [node["action"] for node in forced["nodes"]] == ["reuse", "run", "reuse"]
    later = posttrain.json("plan", FLOW, "--set", "seed=1", "--from", "two")
    assert [node["action"] for node in later["nodes"]] == ["reuse", "reuse", "run"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan", "text2sq"), "there is no flow 'text2sq': did you mean 'text2sql'?"),
        (("plan", "text2sql", "--set", "rl.stepz=3"), 'did you mean "rl.steps"?'),
        (("plan", "text2sql", "--set", "rl.loss.clip_hihg=1"), 'did you mean "rl.loss.clip_high"?'),
        (("plan", "text2sql", "--set", "rl.advantage.kind=gppo"), "no such kind; it is one of grpo, dr_grpo"),
        (("plan", "text2sql", "--set", "rl.loss.kind=gspo"), "set aggregation.kind to sequence_mean"),
        (("plan", "text2sql", "--set", "rl.kl.kind=k3"), "k3 has the gradient of the forward KL as a loss"),
        (("plan", FLOW, "--force", "three"), "no node 'three' in this flow"),
        (("run", FLOW, "--set", "one.steps=0"), "one.steps in --set one.steps=0"),
        (("status", "nothing-like-it"), "no run 'nothing-like-it'"),
        (("resume",), "posttrain resume RUN"),
        (("data", "check", "/nowhere", "--contract", "rollouts/1"), "is not a folder"),
        (("lineage", "audit", "sha256:0123456789"), "nothing in this store has the digest"),
        (("sample", "one", "how many?"), "one is toy_stages.counter/sum, which is not a checkpoint"),
        (("evaluate", "nothing-like-it"), "'nothing-like-it' is no digest, folder or run here"),
    ],
)
def test_a_wrong_request_is_told_in_one_sentence_with_code_2(posttrain, finished, arguments, told):
    out, err = posttrain(*arguments, expect=2)
    assert told in err
    assert out == ""
    assert len(err.strip().splitlines()) == 1


def test_a_refusal_in_a_home_that_is_not_there_is_one_line_and_makes_none(posttrain, tmp_path):
    home = tmp_path / "not" / "there"
    _, err = posttrain("plan", FLOW, "--set", "one.steps=0", expect=2, POSTTRAIN_HOME=str(home))
    assert len(err.strip().splitlines()) == 1 and not home.exists()


def test_an_unknown_option_has_code_2(posttrain):
    _, err = posttrain("run", FLOW, "--fast", expect=2)
    assert "--fast" in err


def test_data_that_breaks_its_contract_has_code_3(posttrain, tmp_path):
    schema = contract("evaluation/1").schema
    row = {
        **{field.name: None for field in schema},
        **{"prompt_id": "p1", "capability": "c", "split": "test-values", "ambiguity": "", "k": 1, "n": 4},
        **{"correct": 5, "unscorable": 0, "strategies": 1, "pass_at_k": 0.5, "distinct_at_k": 0.5},
    }
    with DatasetWriter(tmp_path / "bad", "evaluation/1", {}) as writer:
        writer.write(pa.Table.from_pylist([row], schema=schema))
    _, err = posttrain("data", "check", str(tmp_path / "bad"), expect=3)
    assert "evaluation/1" in err and "correct" in err and "p1" in err
    assert posttrain("data", "export", str(tmp_path / "bad"), str(tmp_path / "bad.jsonl"))[0].startswith(
        "1 rows"
    )
    assert '"prompt_id": "p1"' in (tmp_path / "bad.jsonl").read_text()


def test_doctor_finds_this_machine_fit(posttrain):
    findings = {finding["what"]: finding for finding in posttrain.json("doctor")}
    assert findings["POSTTRAIN_HOME"]["level"] == "ok"
    assert "locks hold" in findings["POSTTRAIN_HOME"]["seen"]
    assert findings["CUDA"]["seen"].startswith("none")
    found = posttrain.start("doctor", "--json", PREFECT_API_URL="http://127.0.0.1:9/api")
    out, _ = found.communicate(timeout=60)
    assert found.returncode == 1 and "does not answer" in out
