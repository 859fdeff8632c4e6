"""A manifest in MLflow's words: names it accepts, params, metrics, tags.

Every value depends on the manifest alone, so that logging the same manifest twice writes the same rows.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from tasks.store.keys import leaves
from tasks.store.manifest import Manifest

DATASET_DIGEST_CHARS = 36  # MLflow's limit; the full digest goes to a tag
PARAM_CHARS = 500
NOT_IN_A_NAME = re.compile(r"[^\w\-. /]")


def metric_name(name: str) -> str:
    """MLflow refuses '@' and a few more: pass@1 becomes pass_at_1."""
    return NOT_IN_A_NAME.sub("_", name.replace("@", "_at_"))


def model_name(node: str) -> str:
    """Logged models take no dots, slashes or colons."""
    return re.sub(r"[^\w\-]", "-", node)


def short_digest(digest: str) -> str:
    return digest.removeprefix("sha256:")[:DATASET_DIGEST_CHARS]


def params(manifest: Manifest) -> dict[str, str]:
    """The result-affecting parameters, flattened; a long value is cut and ends in an ellipsis."""
    found = {}
    for name, value in leaves(manifest.params):
        text = value if isinstance(value, str) else json.dumps(value)
        if name:
            found[metric_name(name)] = text if len(text) <= PARAM_CHARS else text[: PARAM_CHARS - 1] + "…"
    return found


def step_metrics(file: Path) -> list[tuple[str, float, int]]:
    """(name, value, step) of every finite number in a `metrics.jsonl`; empty when the stage logged none."""
    rows = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        scalars = json.loads(line)
        step = int(scalars.pop("step"))
        rows += [
            (metric_name(name), float(value), step) for name, value in scalars.items() if is_number(value)
        ]
    return rows


def summary_metrics(file: Path) -> list[tuple[str, float, int]]:
    """An evaluation's means and standard errors at step 0: `pass_at_1`, `test-values/pass_at_1`,
    `capability/<name>/pass_at_1`; the spread of single capabilities stays in summary.json."""
    summary = json.loads(file.read_text())
    rows = []
    for scope, found in summary["scopes"].items():
        prefix = "" if scope == "overall" else f"{scope}/"
        for name, value in found["metrics"].items():
            rows.append((prefix + metric_name(name), value["mean"], 0))
            rows.append((prefix + metric_name(name) + "_standard_error", value["standard_error"], 0))
    for capability, found in summary["matrix"].items():
        for name, value in found["metrics"].items():
            rows.append((f"capability/{metric_name(capability)}/{metric_name(name)}", value["mean"], 0))
    return [(name, float(value), step) for name, value, step in rows if is_number(value)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def milliseconds(manifest: Manifest) -> tuple[int, int]:
    """When the stage started and ended, in MLflow's unit."""
    return int(manifest.started.timestamp() * 1000), int(manifest.ended.timestamp() * 1000)


def execution(manifest: Manifest) -> str:
    """Tells a forced rerun from the result it replaced: both have the same key."""
    return manifest.started.isoformat()


def run_tags(manifest: Manifest) -> dict[str, str]:
    """The key facts on the stage's own run, because a child run is often looked at without its parent."""
    provenance = manifest.provenance
    dirty = "" if provenance.git_dirty is None else str(provenance.git_dirty).lower()
    tags = {
        "posttrain.key": manifest.key,
        "posttrain.execution": execution(manifest),
        "posttrain.stage": manifest.stage,
        "posttrain.node": provenance.node,
        "posttrain.run_id": provenance.run_id,
        "posttrain.attempts": str(manifest.attempts),
        "posttrain.seconds": f"{manifest.seconds:.3f}",
        "posttrain.recipe_digest": provenance.recipe_digest,
        "posttrain.git_dirty": dirty,
        "posttrain.environment_digest": provenance.environment_digest,
        "posttrain.source_digest": provenance.source_digest,
        "posttrain.out.sha256": manifest.digest,
        "mlflow.source.git.commit": provenance.git_commit or "",
    }
    for name, output in manifest.outputs.items():
        tags[f"posttrain.out.{name}.sha256"] = output.digest
    return {name: value for name, value in tags.items() if value}
