"""What a page is made of, read from a run's nodes. Whatever a run has not made (yet) is None or empty."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks import runs
from tasks.lineage.promotion import PROMOTE
from tasks.store.home import Home
from tasks.store.manifest import Manifest
from tasks.store.objects import Store

EVALUATE, ARCHIVE, PROMPTS = "evaluate", "archive", "prompts"
TRAINING = frozenset({"base", "teacher", "sft", "opd", "rl"})


class Material:
    def __init__(self, home: Home, run_id: str) -> None:
        self.home = home
        self.run = runs.load(home, run_id)
        self.record = self.run.record()
        self.state = self.run.state()
        self.store = Store(home)
        self.nodes = self.run.nodes()

    @cached_property
    def manifests(self) -> dict[str, Manifest]:
        """By node, of the nodes that have a result."""
        found = {}
        for node in self.nodes:
            manifest = self.store.lookup(node.stage, node.key) if node.key else None
            if manifest is not None:
                found[node.node] = manifest
        return found

    def of_stage(self, stage: str) -> Manifest | None:
        """The first finished result of a stage that a flow has once."""
        return next((manifest for manifest in self.manifests.values() if manifest.stage == stage), None)

    def folder(self, manifest: Manifest | None, output: str) -> Path | None:
        if manifest is None or output not in manifest.outputs:
            return None
        folder = self.store.output(manifest.stage, manifest.key, output)
        return folder if folder.is_dir() else None

    def read_json(self, manifest: Manifest | None, output: str, file: str) -> Any:
        folder = self.folder(manifest, output)
        return json.loads((folder / file).read_text()) if folder and (folder / file).is_file() else None

    @cached_property
    def evaluations(self) -> dict[str, Manifest]:
        """By the name of the checkpoint, in the order of training."""
        return {
            node.partition(".")[2] or node: manifest
            for node, manifest in self.manifests.items()
            if manifest.stage == EVALUATE
        }

    @cached_property
    def summaries(self) -> dict[str, dict[str, Any]]:
        found = {
            name: self.read_json(manifest, "summary", "summary.json")
            for name, manifest in self.evaluations.items()
        }
        return {name: summary for name, summary in found.items() if summary}

    @cached_property
    def decision(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.read_json(self.of_stage(PROMOTE), "decision", "decision.json")
        return found

    @cached_property
    def switch(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.read_json(self.of_stage("opd"), "switch", "switch.json")
        return found

    @cached_property
    def growth(self) -> list[dict[str, Any]]:
        """The archive's points: samples drawn, cells found."""
        found = self.read_json(self.of_stage(ARCHIVE), "curve", "curve.json")
        return list(found["points"]) if found else []

    @cached_property
    def questions(self) -> dict[str, tuple[str, str]]:
        """Prompt id to its text and its kind of ambiguity ("" if it has one reading)."""
        from data_contracts.dataset import read

        folder = self.folder(self.of_stage(PROMPTS), "prompts")
        if folder is None:
            return {}
        table = read(folder, "prompts/1", columns=["id", "text", "ambiguity"])
        texts = zip(table["text"].to_pylist(), table["ambiguity"].to_pylist(), strict=True)
        return dict(zip(table["id"].to_pylist(), texts, strict=True))

    def metrics(self, node: runs.NodeRecord) -> dict[str, list[tuple[int, float]]]:
        """The node's series by name, also of an attempt that is under way or was stopped."""
        if node.key is None:
            return {}
        file = self.store.folder(node.stage, node.key) / "metrics.jsonl"
        if node.node not in self.manifests:
            file = self.store.work(node.stage, node.key) / "metrics.jsonl"
        return series(file)


def series(file: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) by name; a line torn by a kill is left out."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        step = row.pop("step")
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, []).append((step, float(value)))
    return found
