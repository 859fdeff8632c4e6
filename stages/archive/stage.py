"""Snapshot the base model's width: sample until new strategies stop, keep one elite per (prompt, strategy).

The archive is of value only if it was taken before RL narrowed the model, so a model with an RL ancestor is
refused (methods.md 1(c)).
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_contracts.checkpoint import read_record, tensor_digest
from data_contracts.dataset import token_metadata
from stages.archive.elites import Elite, better, elite_rows
from stages.archive.granularity import Granularity
from stages.archive.params import ArchiveParams
from stages.context import StageContext
from stages.cursor import parts
from stages.domains.pool import open_pool
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.domains.registry import open_domain
from stages.domains.selection import choose
from stages.engines.chat import open_tokenizer
from stages.engines.hf import open_engine
from stages.errors import GuardError
from stages.part_buffer import PartBuffer
from stages.sampling.judged import Judged, rollout_rows, sample_groups


class ArchiveState:
    """What a resumed archive goes on from: the parts written so far and the growth curve."""

    def __init__(self, work: Path) -> None:
        self.elites = PartBuffer(work / "elites", "elite_archive/1")
        self.rollouts = PartBuffer(work / "rollouts", "rollouts/1")
        self.new_cells: Counter[int] = Counter()  # round -> strategies seen for the first time in it
        self.samples: Counter[int] = Counter()  # round -> completions sampled in it
        self.unscorable = 0
        self.granularity = Granularity()

    def save(self, folder: Path) -> None:
        self.elites.save(folder)
        self.rollouts.save(folder)
        curve = {
            "new_cells": self.new_cells,
            "samples": self.samples,
            "unscorable": self.unscorable,
            "granularity": asdict(self.granularity),
        }
        (folder / "curve.json").write_text(json.dumps(curve))

    def load(self, folder: Path) -> None:
        self.elites.load(folder)
        self.rollouts.load(folder)
        curve = json.loads((folder / "curve.json").read_text())
        self.new_cells = Counter({int(key): value for key, value in curve["new_cells"].items()})
        self.samples = Counter({int(key): value for key, value in curve["samples"].items()})
        self.unscorable = curve["unscorable"]
        self.granularity = Granularity(**curve["granularity"])


def run(ctx: StageContext[ArchiveParams]) -> None:
    params = ctx.params
    base = ctx.input("base")
    refuse_rl_ancestor(base)
    tokenizer = open_tokenizer(base)
    engine = open_engine(base, params.engine, ctx.runtime)
    domain = open_domain(ctx.input("domain"))
    rows = choose(read_prompts(ctx.input("prompts"), Split.TRAIN), params.prompts, ctx.seed("prompts"))
    base_digest = tensor_digest(base)
    chunks = list(parts(len(rows), params.prompts_per_part))
    state = ArchiveState(ctx.work)
    with open_pool(ctx) as pool:
        for step in ctx.steps(len(chunks), state, unit="parts", save_each=True):
            part = [rows[index] for index in chunks[step]]
            elites: dict[str, dict[str, Elite]] = {row.prompt.id: {} for row in part}
            open_rows, quiet = part, Counter[str]()
            for turn in range(params.max_rounds):
                if not open_rows:
                    break
                seed = ctx.seed("samples", step, turn)
                groups = sample_groups(
                    engine, tokenizer, pool, open_rows, params.samples_per_round, params.sampling, seed
                )
                # a group is of one prompt and one round
                state.rollouts.append(rollout_rows(groups, turn))
                for row, group in zip(open_rows, groups, strict=True):
                    found = keep_best(elites[row.prompt.id], group)
                    state.new_cells[turn] += found
                    state.samples[turn] += len(group)
                    state.unscorable += sum(not sample.scorable for sample in group)
                    state.granularity.add(group)
                    quiet[row.prompt.id] = 0 if found else quiet[row.prompt.id] + 1
                open_rows = [row for row in open_rows if quiet[row.prompt.id] < params.patience]
            state.elites.append(
                elite_rows(elites, params.sampling.temperature, base_digest, domain.signature_version)
            )
            ctx.log(
                step + 1,
                cells=sum(len(cells) for cells in elites.values()),
                prompts_with_elites=sum(bool(cells) for cells in elites.values()),
                prompts=len(part),
            )
    state.granularity.require()
    metadata = token_metadata(base)
    if not state.elites.write(ctx.output_path("archive"), metadata):
        raise GuardError("the base solves none of the archive's prompts: there is no strategy to keep")
    state.rollouts.write(ctx.output_path("rollouts"), metadata)
    (ctx.output("curve") / "curve.json").write_text(json.dumps(growth_curve(state), indent=1))


def refuse_rl_ancestor(base: Path) -> None:
    record = read_record(base)
    if record.rl_steps:
        raise GuardError(
            f"the archive must be sampled from a model without RL behind it, and this one has "
            f"{record.rl_steps} RL steps: give the base model, or the archive keeps the collapse that it "
            "should prevent"
        )


def keep_best(cells: dict[str, Elite], group: Sequence[Judged]) -> int:
    """Put a group's correct samples into the prompt's cells; returns how many cells are new."""
    before = len(cells)
    for sample in group:
        signature = sample.judgement.signature
        if not sample.correct or signature is None:
            continue
        held = cells.get(signature)
        cells[signature] = Elite(sample, 1) if held is None else better(held, sample)
    return len(cells) - before


def growth_curve(state: ArchiveState) -> dict[str, Any]:
    """Strategies found against samples drawn, by round over all prompts."""
    points, samples, cells = [], 0, 0
    for turn in sorted(state.samples):
        samples += state.samples[turn]
        cells += state.new_cells[turn]
        points.append({"round": turn + 1, "samples": samples, "cells": cells})
    return {"points": points, "unscorable": state.unscorable}
