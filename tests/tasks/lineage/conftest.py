"""A finished run in miniature: real datasets and checkpoints under true digests, committed by the store."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from data_contracts.checkpoint import StageRecord, TrainingRecord, write_record
from data_contracts.dataset import DatasetWriter
from stages.declaration import Kind
from stages.estimators.coverage import both_at_k, distinct_at_k, pass_at_k
from stages.evaluate.summary import summarise
from stages.evaluate.tally import Tally
from tasks import runs
from tasks.lineage.connection import connect
from tasks.lineage.registry import register
from tasks.store.digest import digest
from tasks.store.home import Home
from tasks.store.keys import canonical, key_of
from tasks.store.manifest import InputRecord, Manifest, OutputRecord, Provenance
from tasks.store.objects import Store, file_records

TOKENIZER = "sha256:" + "7" * 64
START = datetime(2026, 1, 1, tzinfo=UTC)
KS = (1, 8, 32, 128)
SAMPLES = 136
QUESTIONS = {
    "artist-albums": "Which albums are by {}?",
    "genre-tracks": "How many tracks are in the genre {}?",
    "customer-total": "What is the total of the customer {}?",
}
SQL = (
    "SELECT a.Title FROM Album a JOIN Artist r ON r.ArtistId = a.ArtistId WHERE r.Name = '{}'",
    "SELECT Title FROM Album WHERE ArtistId IN (SELECT ArtistId FROM Artist WHERE Name = '{}')",
    "SELECT Title FROM Album a WHERE EXISTS (SELECT 1 FROM Artist r "
    "WHERE r.ArtistId = a.ArtistId AND r.Name = '{}')",
    "WITH r AS (SELECT ArtistId FROM Artist WHERE Name = '{}') SELECT Title FROM Album NATURAL JOIN r",
)
Fill = Callable[[Path], None]


class Pipeline:
    """`put` commits a stage's result as `tasks.execute` does; `run` commits the whole of text2sql."""

    def __init__(self, home: Home, run_id: str, flow: str = "text2sql") -> None:
        self.home, self.store, self.run_id, self.flow = home, Store(home), run_id, flow
        self.made: dict[str, Manifest] = {}
        self.ledger = runs.Run(home, run_id)
        if self.ledger.folder.exists():
            self.made = {manifest.provenance.node: manifest for manifest in self.store.manifests()}
            return
        record = runs.RunRecord(
            id=run_id,
            flow=flow,
            home=str(home.root),
            recipe={"seed": 0, "rl": {"steps": 3}},
            profile="ci",
            flow_run_id="0a0a",
            git_commit="c" * 40,
            started=START,
        )
        runs.create(home, record)

    def put(
        self,
        node: str,
        outputs: dict[str, tuple[Kind, str | None, Fill]],
        inputs: dict[str, tuple[str, str]],
        metrics: list[dict[str, Any]] | None = None,
        **params: Any,
    ) -> Manifest:
        stage = node.partition(".")[0]
        given = {}
        for name, (producer, output) in inputs.items():
            source = self.made[producer]
            given[name] = InputRecord(
                stage=source.stage, key=source.key, output=output, digest=source.outputs[output].digest
            )
        digests = {name: record.digest for name, record in given.items()}
        key = key_of(stage, 1, {}, params, digests)
        if (known := self.store.lookup(stage, key)) is not None:
            self.made[node] = known
            self._record(node, known, runs.NodeState.REUSED)
            return known
        work = self.store.work(stage, key)
        (work / "out").mkdir(parents=True)
        (work / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics or []))
        (work / "reports").mkdir()
        (work / "reports" / "suite.json").write_text(json.dumps({"success": True, "stage": stage}))
        records = {}
        for name, (kind, contract, fill) in outputs.items():
            folder = work / "out" / name
            fill(folder)
            records[name] = OutputRecord(
                kind=kind, contract=contract, digest=digest(kind, folder), files=file_records(folder)
            )
        started = START + timedelta(minutes=len(self.made))
        manifest = Manifest(
            stage=stage,
            version=1,
            key=key,
            params=params,
            inputs=given,
            outputs=records,
            attempts=1,
            seconds=12.5,
            started=started,
            ended=started + timedelta(seconds=12.5),
            runtime={"threads": 1},
            provenance=Provenance(
                run_id=self.run_id,
                node=node,
                flow=self.flow,
                recipe_digest="sha256:" + "e" * 64,
                git_commit="c" * 40,
                git_dirty=False,
                environment_digest="sha256:" + "f" * 64,
            ),
            reports={
                name: {"contract": contract, "expectations": 3, "warnings": [], "seconds": 0.1}
                for name, (_, contract, _) in outputs.items()
                if contract
            },
        )
        self.store.commit(manifest, work / "out", work)
        self.made[node] = manifest
        self._record(node, manifest, runs.NodeState.COMPLETED)
        return manifest

    def _record(self, node: str, manifest: Manifest, state: runs.NodeState) -> None:
        done = runs.NodeRecord(
            node=node, stage=manifest.stage, key=manifest.key, digest=manifest.digest, state=state,
            attempts=manifest.attempts, seconds=manifest.seconds,
            started=manifest.started, ended=manifest.ended,
        )  # fmt: skip
        self.ledger.write_node(done)

    # the stages

    def run(self, *, promoted: bool = True, base_steps: int = 5, until: str = "promote") -> "Pipeline":
        """Every stage up to and including `until`."""
        todo: list[tuple[str, Callable[[], Manifest]]] = [
            ("prompts", self.prompts),
            ("base", lambda: self.checkpoint("base", {"prompts": ("prompts", "prompts")}, steps=base_steps)),
            ("evaluate.base", lambda: self.evaluate("base", 0.3, 4)),
            ("archive", self.archive),
            ("sft", lambda: self.checkpoint("sft", {"policy": ("base", "checkpoint")}, steps=2)),
            ("evaluate.sft", lambda: self.evaluate("sft", 0.5, 2)),
            ("opd", self.opd),
            ("evaluate.opd", lambda: self.evaluate("opd", 0.6, 2)),
            ("rl", self.rl),
            ("evaluate.rl", lambda: self.evaluate("rl", 0.8, 3)),
            ("promote", lambda: self.promote(promoted)),
        ]
        for node, make in todo:
            make()
            if node == until:
                break
        else:
            raise AssertionError(f"no node {until}")
        if until == "promote":
            self.ledger.close(runs.RunState.COMPLETED)
        return self

    def prompts(self) -> Manifest:
        def domain(folder: Path) -> None:
            folder.mkdir(parents=True)
            (folder / "chinook.sqlite").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 8)

        def prompts(folder: Path) -> None:
            with DatasetWriter(folder, "prompts/1", {}) as writer:
                writer.write(prompt_rows())

        outputs = {"prompts": (Kind.DATASET, "prompts/1", prompts), "domain": (Kind.FILES, None, domain)}
        return self.put("prompts", outputs, {}, seed=0)

    def checkpoint(self, node: str, inputs: dict[str, tuple[str, str]], **params: Any) -> Manifest:
        history = [{"step": step, "loss": 2.0 / step, "gradient_norm": 1.0} for step in range(1, 6)]
        return self.put(
            node,
            {"checkpoint": self._model(node, params, inputs.get("policy", ("", ""))[0])},
            inputs,
            history,
            **params,
        )

    def _model(self, node: str, params: dict[str, Any], policy: str = "") -> tuple[Kind, None, Fill]:
        def fill(folder: Path) -> None:
            folder.mkdir(parents=True)
            start = self.made[policy].digest if policy else ""
            said = hashlib.sha256(canonical({"node": node, "params": params, "start": start})).digest()
            seed = int.from_bytes(said[:4], "big")
            weights = np.random.default_rng(seed).normal(size=(4, 8)).astype(np.float32)
            save_file({"embed.weight": weights}, folder / "model.safetensors")
            config = {
                "architectures": ["LlamaForCausalLM"],
                "vocab_size": 4,
                "eos_token_id": 1,
                "pad_token_id": 0,
            }
            (folder / "config.json").write_text(json.dumps(config))
            vocabulary = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}
            model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<pad>"}
            (folder / "tokenizer.json").write_text(
                json.dumps({"version": "1.0", "added_tokens": [], "model": model})
            )
            (folder / "tokenizer_config.json").write_text(
                json.dumps({"eos_token": "<eos>", "pad_token": "<pad>"})
            )
            (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
            (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "pad_token_id": 0}))
            write_record(folder, TrainingRecord((StageRecord(node, 5),)))

        return Kind.CHECKPOINT, None, fill

    def evaluate(self, of: str, rate: float, strategies: int) -> Manifest:
        samples = [row for prompt in held_out() for row in sample_rows(prompt, of, rate, strategies)]
        tallies = [
            tally_of(prompt, [row for row in samples if row["prompt_id"] == prompt["id"]])
            for prompt in held_out()
        ]
        rows = [row for tally in tallies for row in rows_of(tally)]

        def evaluation(folder: Path) -> None:
            with DatasetWriter(folder, "evaluation/1", {}) as writer:
                writer.write(rows)

        def drawn(folder: Path) -> None:
            with DatasetWriter(folder, "rollouts/1", {"posttrain.tokenizer": TOKENIZER}) as writer:
                writer.write(samples)

        def summary(folder: Path) -> None:
            folder.mkdir(parents=True)
            (folder / "summary.json").write_text(json.dumps(summarise(tallies, rows, ["artist-albums"])))

        outputs = {
            "evaluation": (Kind.DATASET, "evaluation/1", evaluation),
            "samples": (Kind.DATASET, "rollouts/1", drawn),
            "summary": (Kind.FILES, None, summary),
        }
        inputs = {
            "policy": (of, "checkpoint"),
            "prompts": ("prompts", "prompts"),
            "domain": ("prompts", "domain"),
        }
        return self.put(f"evaluate.{of}", outputs, inputs, samples=SAMPLES, ks=list(KS))

    def archive(self) -> Manifest:
        def curve(folder: Path) -> None:
            folder.mkdir(parents=True)
            points = [{"round": n, "samples": 48 * n, "cells": round(20 * (1 - 0.5**n))} for n in range(1, 7)]
            (folder / "curve.json").write_text(json.dumps({"points": points, "unscorable": 1}))

        inputs = {"base": ("base", "checkpoint"), "prompts": ("prompts", "prompts")}
        return self.put("archive", {"curve": (Kind.FILES, None, curve)}, inputs, max_rounds=6)

    def opd(self) -> Manifest:
        scores = [0.50, 0.55, 0.59, 0.60, 0.601, 0.60]

        def switch(folder: Path) -> None:
            folder.mkdir(parents=True)
            curve = [
                {"step": 20 * n, "score": score, "standard_error": 0.02, "unscorable": 0}
                for n, score in enumerate(scores)
            ]
            decision = {"curve": curve, "switch_step": 100, "reason": "plateau"}
            (folder / "switch.json").write_text(json.dumps(decision))

        history = [{"step": step, "reverse_kl": 1.0 / step, "gradient_norm": 0.5} for step in range(1, 101)]
        outputs = {"checkpoint": self._model("opd", {}, "sft"), "switch": (Kind.FILES, None, switch)}
        return self.put("opd", outputs, {"policy": ("sft", "checkpoint")}, history, steps=100)

    def rl(self) -> Manifest:
        history = [
            {"step": n, "pass_rate": 0.5 + n / 60, "distinct_correct": 2 + n / 10, "entropy": 1.5 - n / 20,
             "zero_variance": 0.2, "truncated": 0.01, "unscorable": 0, "mean_length": 30.0, "loss": 0.1,
             "replay_nll": None if n == 1 else 1.0, "width_alarm": int(n == 9)}
            for n in range(1, 13)
        ]  # fmt: skip
        inputs = {
            "policy": ("opd", "checkpoint"),
            "archive": ("archive", "curve"),
            "prompts": ("prompts", "prompts"),
        }
        return self.put("rl", {"checkpoint": self._model("rl", {}, "opd")}, inputs, history, steps=3)

    def promote(self, promoted: bool) -> Manifest:
        gates = [
            {"name": "width", "holds": promoted, "observed": 2.9 if promoted else 1.2, "limit": 2.0,
             "sentence": "distinct@128 must stay at 2.0 or above"},
            {"name": "contracts", "holds": True, "observed": 0, "limit": 0,
             "sentence": "no contract was breached"},
        ]  # fmt: skip
        matrix = {
            "artist-albums": {"base": 0.31, "sft": 0.50, "opd": 0.61, "rl": 0.83},
            "genre-tracks": {"base": 0.42, "sft": 0.45, "opd": 0.40, "rl": 0.29},
        }

        def decision(folder: Path) -> None:
            folder.mkdir(parents=True)
            found = {"promoted": promoted, "gates": gates, "matrix": matrix}
            (folder / "decision.json").write_text(json.dumps(found))

        inputs = {
            "policy": ("rl", "checkpoint"),
            "before": ("evaluate.base", "evaluation"),
            "after": ("evaluate.rl", "evaluation"),
        }
        return self.put(
            "promote", {"decision": (Kind.FILES, None, decision)}, inputs, promoted_in_this_test=promoted
        )


def prompt_rows() -> list[dict[str, Any]]:
    rows = []
    for split in ("train", "validation", "test-values", "test-compositions"):
        for family, text in QUESTIONS.items():
            question = text.format(f"Band {len(rows)} <& co>")
            ambiguous = family == "customer-total"
            rows.append(
                {
                    "id": f"{family}-{len(rows)}", "domain": "sql", "capability": family, "text": question,
                    "messages": [{"role": "user", "content": question}], "payload": "{}", "split": split,
                    "answer_class": "open", "ambiguity": "synonymous-column" if ambiguous else "",
                    "readings": 2 if ambiguous else 1,
                }
            )  # fmt: skip
    return rows


def held_out() -> list[dict[str, Any]]:
    return [row for row in prompt_rows() if row["split"].startswith("test")]


def sample_rows(prompt: dict[str, Any], of: str, rate: float, strategies: int) -> list[dict[str, Any]]:
    draw = random.Random(f"{prompt['id']} {of}")
    rows = []
    for sample in range(SAMPLES):
        unscorable = sample == SAMPLES - 1 and of == "base"
        right = draw.random() < rate and not unscorable
        strategy = min(int(draw.expovariate(0.9)), strategies - 1)
        ambiguous = bool(prompt["ambiguity"])
        rows.append(
            {
                "prompt_id": prompt["id"], "group_id": prompt["id"], "sample": sample,
                "capability": prompt["capability"], "prompt_ids": [2, 3], "completion_ids": [2, 1],
                "logprobs": [-0.5, -0.1], "head_size": 0,
                "head_ids": [], "head_logprobs": [],
                "weight_version": [0, 0], "temperature": 1.0, "top_p": 1.0,
                "top_k": 0, "stop_reason": "eos", "reward": None if unscorable else float(right),
                "unscorable": "deadline" if unscorable else None,
                "reading": ("first", "second")[sample % 2] if right and ambiguous else None,
                "signature": f"plan-{strategy}" if right else None,
                "text": SQL[strategy].format(prompt["id"]) if right else "SELECT <nothing> FROM Album",
                "step": 0,
            }
        )  # fmt: skip
    return rows


def tally_of(prompt: dict[str, Any], rows: list[dict[str, Any]]) -> Tally:
    def count(column: str) -> dict[str, int]:
        values = [row[column] for row in rows if row[column] is not None]
        return {value: values.count(value) for value in sorted(set(values))}

    return Tally(
        prompt_id=prompt["id"],
        capability=prompt["capability"],
        split=prompt["split"],
        ambiguity=prompt["ambiguity"],
        samples=len(rows),
        tokens=2 * len(rows),
        stop_reasons=count("stop_reason"),
        unscorable=count("unscorable"),
        strategies=count("signature"),
        readings=count("reading"),
    )


def rows_of(tally: Tally) -> list[dict[str, Any]]:
    counts, n = sorted(tally.strategies.values()), tally.scorable
    first, second, *_ = [*tally.readings.values(), 0, 0]
    return [
        {
            "prompt_id": tally.prompt_id, "capability": tally.capability, "split": tally.split,
            "ambiguity": tally.ambiguity, "k": k, "n": tally.samples, "correct": tally.correct,
            "unscorable": tally.samples - n, "strategies": len(counts),
            "pass_at_k": pass_at_k(n, tally.correct, k), "distinct_at_k": distinct_at_k(n, counts, k),
            "both_at_k": both_at_k(n, first, second, k) if tally.ambiguity else None,
        }
        for k in KS
        if k <= n
    ]  # fmt: skip


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make its tables: once for all tests."""
    with connect(Home(tmp_path_factory.mktemp("mlflow"))) as tracking:
        return Path(tracking.uri.removeprefix("sqlite:///"))


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tracking server of this machine takes part."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Pipeline:
    """A promoted run that MLflow has not seen; copy it, do not change it."""
    home = Home(tmp_path_factory.mktemp("finished") / "home")
    home.mlflow.mkdir(parents=True)
    shutil.copy(empty_database, home.mlflow / "mlflow.db")
    return Pipeline(home, "text2sql-a").run()


def copy_of(run: Pipeline, folder: Path) -> Pipeline:
    home = Home(folder / "home")
    shutil.copytree(run.home.root, home.root)
    return Pipeline(home, run.run_id)


@pytest.fixture
def home(tmp_path: Path, empty_database: Path) -> Home:
    """Without runs, with an empty MLflow database."""
    found = Home(tmp_path / "home")
    found.mlflow.mkdir(parents=True)
    shutil.copy(empty_database, found.mlflow / "mlflow.db")
    return found


@pytest.fixture
def pipeline(finished: Pipeline, tmp_path: Path) -> Pipeline:
    """A promoted run, the test's own."""
    return copy_of(finished, tmp_path)


@pytest.fixture(scope="session")
def registered(finished: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A promoted run that MLflow has; to look at only."""
    run = copy_of(finished, tmp_path_factory.mktemp("registered"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        register(run.home, run.run_id)
    return run


@pytest.fixture
def new_pipeline(tmp_path: Path) -> Callable[..., Pipeline]:
    """`new_pipeline(run_id)` in the test's home: nothing has run yet."""
    return partial(Pipeline, Home(tmp_path / "home"))
