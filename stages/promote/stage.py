"""Write decision.json: every gate with its numbers, the capability matrix, and whether all gates hold.

A gate that fails is a result, not an error: the stage succeeds either way.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from data_contracts.dataset import read
from stages.context import StageContext
from stages.promote.gates import judge
from stages.promote.measurements import Measurements, Metric, Where, of_capability, of_split
from stages.promote.params import PromoteParams

COLUMNS = {"base": "before", "sft": "sft", "opd": "opd", "rl": "after"}
"""Checkpoint -> the input that is its evaluation, in the order of training."""


def run(ctx: StageContext[PromoteParams]) -> None:
    measured = {
        checkpoint: Measurements(read(ctx.input(name), "evaluation/1").to_pylist())
        for checkpoint, name in COLUMNS.items()
        if ctx.has_input(name)
    }
    decision = decide(measured, ctx.params)
    text = json.dumps(decision, indent=1, allow_nan=False)
    (ctx.output("decision") / "decision.json").write_text(text + "\n")


def decide(measured: Mapping[str, Measurements], params: PromoteParams) -> dict[str, Any]:
    """`measured` by checkpoint, with at least `base` and `rl`.

    Returns {promoted, gates, matrix: {capability: {checkpoint: pass@1}}, prompts: {capability: {splits,
    prompts}}, checkpoints: {checkpoint: {scope: {metric@k: mean over prompts}}}}.
    """
    gates = judge(measured["base"], measured["rl"], params)
    capabilities = sorted({name for found in measured.values() for name in found.capabilities})
    return {
        "promoted": all(gate.holds for gate in gates),
        "gates": [_finite(dataclasses.asdict(gate)) for gate in gates],
        "matrix": {
            capability: {
                checkpoint: found.mean(Metric.PASS, 1, of_capability(capability))
                for checkpoint, found in measured.items()
            }
            for capability in capabilities
        },
        "prompts": {capability: _prompts(measured["rl"], capability) for capability in capabilities},
        "checkpoints": {
            checkpoint: {"overall": _means(found)}
            | {split: _means(found, of_split(split)) for split in found.splits}
            for checkpoint, found in measured.items()
        },
    }


def _prompts(found: Measurements, capability: str) -> dict[str, Any]:
    own = [prompt for prompt in found.prompts.values() if prompt.capability == capability]
    return {"splits": sorted({prompt.split for prompt in own}), "prompts": len(own)}


def _means(found: Measurements, where: Where | None = None) -> dict[str, float]:
    means = {f"{metric}@{k}": found.mean(metric, k, where) for metric in Metric for k in found.ks}
    return {name: mean for name, mean in means.items() if mean is not None}


def _finite(gate: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: a limit that nothing can exceed is None."""
    limit = gate["limit"]
    return gate | {"limit": None if limit is not None and abs(limit) == float("inf") else limit}
