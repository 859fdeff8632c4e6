"""`write`: the page of a run at `reports/<run id>.html`, with everything inlined and nothing fetched."""

import json
from pathlib import Path
from typing import Any

from data_contracts.durable import write_atomic
from tasks import runs
from tasks.duration import duration
from tasks.lineage.resolve import audit_target
from tasks.report import curves, numbers, reading
from tasks.report.material import Material
from tasks.store.home import Home

DONE = {runs.NodeState.COMPLETED, runs.NodeState.REUSED}
TEMPLATE = "page.html.jinja"


def write(home: Home, run_id: str) -> Path:
    """Raises UsageError for an unknown run; whatever the run has not made is said in words."""
    material = Material(home, run_id)
    path = home.reports / f"{material.run.id}.html"
    write_atomic(path, render(material))
    return path


def render(material: Material) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tasks.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": took, "signed": signed, "number": numbers.number}
    return environment.get_template(TEMPLATE).render(**content(material))


def content(material: Material) -> dict[str, Any]:
    """What the template shows; an empty or None part becomes a sentence there."""
    metrics, checkpoints, capabilities = numbers.capabilities(material)
    before, after, strategies = reading.strategies(material)
    rollout_of, rollouts = reading.rollouts(material)
    record = material.record
    return {
        "run": record,
        "state": material.state,
        "nodes": material.nodes,
        "manifests": material.manifests,
        "unfinished": [node for node in material.nodes if node.state not in DONE],
        "reused": [node for node in material.nodes if node.state is runs.NodeState.REUSED],
        "decision": material.decision,
        "verdict": verdict(material),
        "tiles": numbers.tiles(material),
        "tables": numbers.result_tables(material.summaries),
        "coverage": curves.coverage(material),
        "training": curves.training(material),
        "switch": material.switch,
        "archive": curves.archive(material),
        "capability_metrics": metrics,
        "capability_checkpoints": checkpoints,
        "capabilities": capabilities,
        "before": before,
        "after": after,
        "strategies": strategies,
        "rollout_of": rollout_of,
        "rollouts": rollouts,
        "contracts": contracts(material),
        "recipe": json.dumps(record.recipe, indent=2, ensure_ascii=False),
        "target": audit_target(material.home, record.id),
    }


def promoted(material: Material) -> bool:
    return bool(material.decision and material.decision["promoted"])


def verdict(material: Material) -> str:
    """Promoted or not and why, or how far the run has come, in one sentence."""
    if material.decision is None:
        done = sum(node.state in DONE for node in material.nodes)
        last = f": {material.record.message}" if material.record.message else ""
        return f"The run is {material.state} with {done} of {len(material.nodes)} nodes done{last}"
    gates = material.decision["gates"]
    broken = [gate for gate in gates if not gate["holds"]]
    if promoted(material):
        return f"All {len(gates)} gates hold."
    why = "; ".join(f"{gate['name']}: {gate['sentence']}" for gate in broken)
    return f"{len(broken)} of {len(gates)} gates do not hold: {why}."


def contracts(material: Material) -> list[dict[str, Any]]:
    """One entry for each output that was checked, with its warnings."""
    return [
        {"node": node, "output": output, "digest": manifest.outputs[output].digest, **found}
        for node, manifest in material.manifests.items()
        for output, found in manifest.reports.items()
        if output in manifest.outputs
    ]


def took(seconds: float | None) -> str:
    return numbers.ABSENT if seconds is None else duration(seconds)


def signed(value: float) -> str:
    """With a true minus sign."""
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")
