"""The end of a run: what each checkpoint can do on held-out questions, and what was promoted or why not."""

import json
from typing import TYPE_CHECKING, Any

from tasks.runs import NodeRecord, Run
from tasks.store.manifest import Manifest
from tasks.store.objects import Store

if TYPE_CHECKING:
    from rich.table import Table

EVALUATE = "evaluate"
OVERALL = "overall"
SINGLE_K = "pass"  # shown for every k; the other metrics at the largest k


def summaries(store: Store, nodes: list[NodeRecord]) -> dict[str, dict[str, Any]]:
    """summary.json of each finished evaluation, by the checkpoint's name, in the order of the flow."""
    found = {}
    for node in nodes:
        if node.stage == EVALUATE and (manifest := _manifest(store, node)):
            name = node.node.partition(".")[2] or node.node
            found[name] = _json(store, manifest, "summary", "summary.json")
    return found


def decision(store: Store, nodes: list[NodeRecord]) -> dict[str, Any] | None:
    """decision.json of the run's promote node, if it came that far."""
    for node in nodes:
        if node.stage == "promote" and (manifest := _manifest(store, node)):
            return _json(store, manifest, "decision", "decision.json")
    return None


def _manifest(store: Store, node: NodeRecord) -> Manifest | None:
    return store.lookup(node.stage, node.key) if node.key else None


def _json(store: Store, manifest: Manifest, output: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((store.path(manifest.refs()[output]) / file).read_text())
    return found


def results(run: Run) -> dict[str, Any]:
    """The numbers of the run for scripts: means and standard errors by split, checkpoint and metric."""
    store, nodes = Store(run.home), run.nodes()
    by_checkpoint = summaries(store, nodes)
    splits = _splits(by_checkpoint)
    return {
        "metrics": {
            split: {name: summary["scopes"][split]["metrics"] for name, summary in by_checkpoint.items()}
            for split in splits
        },
        "decision": decision(store, nodes),
    }


def _splits(by_checkpoint: dict[str, dict[str, Any]]) -> list[str]:
    """Every measured split, test-values before test-compositions: from what was seen to what was not."""
    names = {split for summary in by_checkpoint.values() for split in summary["scopes"]} - {OVERALL}
    return sorted(names, reverse=True)


def tables(by_checkpoint: dict[str, dict[str, Any]]) -> "list[Table]":
    """One table a split: a row for each checkpoint, mean ± standard error over prompts."""
    return [_table(split, by_checkpoint) for split in _splits(by_checkpoint)]


def _table(split: str, by_checkpoint: dict[str, dict[str, Any]]) -> "Table":
    from rich.table import Table

    scopes = {
        name: summary["scopes"][split]
        for name, summary in by_checkpoint.items()
        if split in summary["scopes"]
    }
    first = next(iter(scopes.values()))
    columns = columns_of({metric for scope in scopes.values() for metric in scope["metrics"]})
    title = f"{split}: {first['prompts']} held-out questions, {first['ambiguous']} of them ambiguous"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("checkpoint")
    for column in columns:
        table.add_column(column, justify="right")
    for name, scope in scopes.items():
        table.add_row(name, *(cell(scope["metrics"].get(column)) for column in columns))
    return table


def columns_of(metrics: set[str]) -> list[str]:
    """pass@k for every k, then distinct@k and both@k at their largest k."""
    ks: dict[str, list[int]] = {}
    for metric in metrics:
        name, _, k = metric.partition("@")
        ks.setdefault(name, []).append(int(k))
    columns = [f"{SINGLE_K}@{k}" for k in sorted(ks.get(SINGLE_K, []))]
    return columns + [f"{name}@{max(ks[name])}" for name in ("distinct", "both") if name in ks]


def cell(metric: dict[str, Any] | None) -> str:
    """mean ± standard error, three digits after the point below ten, two above."""
    if metric is None or metric["mean"] is None:
        return "-"
    digits = 3 if abs(metric["mean"]) < 10 else 2
    spread = metric["standard_error"]
    return f"{metric['mean']:.{digits}f}" + ("" if spread is None else f" ±{spread:.{digits}f}")


def verdict_lines(found: dict[str, Any] | None) -> list[str]:
    """What was promoted, or every gate that did not hold with its numbers."""
    if found is None:
        return []
    gates = found["gates"]
    if found["promoted"]:
        return [f"promoted: all {len(gates)} gates hold"]
    broken = [gate for gate in gates if not gate["holds"]]
    return [
        f"not promoted: {len(broken)} of {len(gates)} gates do not hold",
        *(f"  {gate['name']}: {gate['sentence']}" for gate in broken),
    ]
