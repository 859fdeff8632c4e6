"""The whole stage on a genuine small model and a domain of the user's own, judged in worker processes."""

import json
import os
import signal
import sys
from collections import Counter
from statistics import fmean

import pytest

from data_contracts.checkpoint import TrainingRecord
from data_contracts.dataset import DatasetWriter, read
from data_contracts.registry import contract
from stages.context import StageContext
from stages.domains.registry import write_name
from stages.engines.checkpoint import export, new_llama
from stages.engines.params import ModelShape, Sampling
from stages.errors import StageStopped, UsageError
from stages.evaluate.params import EvaluateParams
from stages.evaluate.stage import run
from stages.prompts.tokenizer import train_tokenizer
from stages.spec import Runtime, StageSpec

DOMAIN = '''
"""An answer is judged by its bytes, so that a model with random weights has all kinds of verdicts."""
from stages.domains.protocol import Unscorable, Verdict


class Bytes:
    name, version, signature_version = "bytes", 1, "bytes/1"

    def __init__(self, folder):
        pass

    def verify(self, prompts, texts):
        return [self.verdict(text.encode()) for text in texts]

    def verdict(self, data):
        kind = sum(data) % 8
        if kind == 0:
            return Verdict(unscorable=Unscorable.VERIFIER_ERROR)
        return Verdict(reward=float(kind > 4), reading="odd" if len(data) % 2 else "even")

    def signature(self, prompt, text):
        return f"{sum(text.encode()) % 3}"
'''
PARAMS = EvaluateParams(
    prompts={"test-values": 4, "test-compositions": None},
    samples=12,
    ks=(1, 4, 8),
    prompts_per_step=2,
    sampling=Sampling(max_new_tokens=5),
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    root = tmp_path_factory.mktemp("evaluate")
    (root / "bytes_domain.py").write_text(DOMAIN)
    tokenizer = train_tokenizer(["how many tracks", "list albums by artist"], 270)
    model = new_llama(ModelShape(hidden=16, layers=1, heads=2, intermediate=32), tokenizer, seed=1)
    export(model, tokenizer, TrainingRecord(), root / "policy")
    (root / "domain").mkdir()
    write_name(root / "domain", "bytes_domain:Bytes")
    rows = [
        {
            "id": f"{split}-{i}",
            "domain": "bytes",
            "capability": f"{split}/{i % 2}",
            "text": f"how many tracks {i}",
            "messages": [{"role": "user", "content": f"how many tracks {i}"}],
            "payload": "{}",
            "split": split,
            "answer_class": "open",
            "ambiguity": "C" if i % 3 == 0 else "",
            "readings": 2 if i % 3 == 0 else 1,
        }
        for split, count in [("train", 2), ("test-values", 9), ("test-compositions", 3)]
        for i in range(count)
    ]
    with DatasetWriter(root / "prompts", "prompts/1", {}) as writer:
        writer.write(rows)
    sys.path.insert(0, str(root))
    yield {name: root / name for name in ("policy", "prompts", "domain")}
    sys.path.remove(str(root))


def context(inputs, root, params=PARAMS, kind=StageContext):
    work = root / "work"
    work.mkdir(parents=True, exist_ok=True)
    spec = StageSpec(
        stage="evaluate",
        node="evaluate.base",
        attempt=1,
        params={},
        runtime=Runtime(save_every_s=1e-6, sample_batch_rows=32),
        inputs=inputs,
        work=work,
        out=root / "out",
    )
    return kind(spec, params)


def outputs(root):
    return (
        read(root / "out" / "samples", "rollouts/1"),
        read(root / "out" / "evaluation", "evaluation/1"),
        json.loads((root / "out" / "summary" / "summary.json").read_text()),
    )


@pytest.fixture(scope="module")
def undisturbed(inputs, tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    run(context(inputs, root))
    return outputs(root)


def test_outputs_meet_their_contracts(undisturbed):
    samples, evaluation, _ = undisturbed
    assert contract("rollouts/1").check(samples) == []
    assert contract("evaluation/1").check(evaluation) == []


def test_estimates_are_those_of_the_written_samples(undisturbed):
    samples, evaluation, summary = undisturbed
    by_prompt = {}
    for row in samples.to_pylist():
        by_prompt.setdefault(row["prompt_id"], []).append(row)
    assert len(by_prompt) == 7 and {len(rows) for rows in by_prompt.values()} == {12}
    for row in evaluation.to_pylist():
        own = by_prompt[row["prompt_id"]]
        scored = [sample for sample in own if sample["reward"] is not None]
        correct = [sample for sample in scored if sample["reward"] == 1]
        assert (row["n"], row["unscorable"], row["correct"]) == (12, 12 - len(scored), len(correct))
        assert row["strategies"] == len({sample["signature"] for sample in correct})
        if row["k"] == 1:
            assert row["pass_at_k"] == pytest.approx(len(correct) / len(scored))
            assert row["distinct_at_k"] == row["pass_at_k"]
    overall = summary["scopes"]["overall"]
    first = [row["pass_at_k"] for row in evaluation.to_pylist() if row["k"] == 1]
    assert overall["metrics"]["pass@1"]["mean"] == pytest.approx(fmean(first))
    assert overall["stop_reasons"] == Counter(samples.column("stop_reason").to_pylist())
    reasons = Counter(reason for reason in samples.column("unscorable").to_pylist() if reason)
    assert overall["unscorable"] == reasons and reasons.total() > 0
    assert set(summary["scopes"]) == {"overall", "test-values", "test-compositions"}
    assert {name: row["trained"] for name, row in summary["matrix"].items()} == {
        f"{split}/{i}": False for split in ("test-values", "test-compositions") for i in (0, 1)
    }


class CrashAfterFirstPart(StageContext):
    def log(self, step, **scalars):
        if step == 2:
            raise RuntimeError("killed")  # with the part's samples on disk and the step not saved
        super().log(step, **scalars)


class StoppedAtSecondPart(StageContext):
    def log(self, step, **scalars):
        super().log(step, **scalars)
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)


def test_interrupted_and_resumed_equals_undisturbed(inputs, tmp_path, undisturbed):
    with pytest.raises(RuntimeError, match="killed"):
        run(context(inputs, tmp_path, kind=CrashAfterFirstPart))
    stopped = context(inputs, tmp_path, kind=StoppedAtSecondPart)
    before = signal.getsignal(signal.SIGTERM)
    stopped.listen_for_stop()
    try:
        with pytest.raises(StageStopped, match="after step 2 of 4"):
            run(stopped)
    finally:
        signal.signal(signal.SIGTERM, before)
    last = context(inputs, tmp_path)
    assert last.latest_step()[0] == 2
    run(last)
    assert outputs(tmp_path) == undisturbed
    logged = [json.loads(line) for line in (tmp_path / "work" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in logged] == [1, 2, 3, 4]


def test_seed_chooses_the_samples(inputs, tmp_path, undisturbed):
    run(context(inputs, tmp_path, PARAMS.model_copy(update={"seed": 1})))
    assert outputs(tmp_path)[0].column("text") != undisturbed[0].column("text")


def test_a_split_without_prompts_is_refused(inputs, tmp_path):
    params = PARAMS.model_copy(update={"prompts": {"validation": 4}})
    with pytest.raises(UsageError, match="validation"):
        run(context(inputs, tmp_path, params))
