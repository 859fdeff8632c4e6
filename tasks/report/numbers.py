"""The tables of a page as plain values: headline, results by split, gates, capability matrix."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from tasks.report.material import Material

OVERALL = "overall"
SHOWN_DIGITS = 3
ABSENT = "\N{EN DASH}"


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts and its standard error; None where it was not measured."""

    mean: float | None
    error: float | None = None

    @classmethod
    def of(cls, metric: dict[str, Any] | None) -> "Estimate":
        return cls(metric["mean"], metric["standard_error"]) if metric else cls(None)

    @property
    def text(self) -> str:
        return ABSENT if self.mean is None else number(self.mean)

    @property
    def spread(self) -> str:
        return "" if self.error is None else f"± {number(self.error)}"


@dataclass(frozen=True)
class Tile:
    """A headline number: what it was at the base, what it is at the last checkpoint."""

    metric: str
    meaning: str
    before: Estimate
    after: Estimate

    @property
    def change(self) -> float | None:
        if self.before.mean is None or self.after.mean is None:
            return None
        return self.after.mean - self.before.mean


@dataclass(frozen=True)
class ResultTable:
    split: str
    prompts: int
    ambiguous: int
    columns: list[str]
    rows: dict[str, list[Estimate]]  # by checkpoint


@dataclass(frozen=True)
class Capability:
    """`values` by metric and checkpoint. `trained` is None where no evaluation says so."""

    name: str
    trained: bool | None
    prompts: int
    values: dict[str, list[Estimate]]
    gate_broken: bool

    def scale(self, metric: str) -> float:
        """What full colour stands for: 1 for a probability, the row's maximum for a count."""
        means = [estimate.mean or 0.0 for estimate in self.values[metric]]
        return max([*means, 1.0]) if metric.startswith("distinct") else 1.0

    def change(self, metric: str) -> float | None:
        known = [estimate.mean for estimate in self.values[metric]]
        if len(known) < 2 or known[0] is None or known[-1] is None:
            return None
        return known[-1] - known[0]


def number(value: float) -> str:
    return f"{value:.{SHOWN_DIGITS if abs(value) < 10 else 1}f}"


def columns_of(metrics: AbstractSet[str]) -> list[str]:
    """pass@k for every k, then distinct@k and both@k at their largest k."""
    ks: dict[str, list[int]] = {}
    for metric in metrics:
        name, _, k = metric.partition("@")
        ks.setdefault(name, []).append(int(k))
    singles = [f"pass@{k}" for k in sorted(ks.get("pass", []))]
    return singles + [f"{name}@{max(ks[name])}" for name in ("distinct", "both") if name in ks]


def result_tables(summaries: Mapping[str, dict[str, Any]]) -> list[ResultTable]:
    """One a split, with a row for each checkpoint."""
    return [_result_table(split, summaries) for split in splits(summaries)]


def splits(summaries: Mapping[str, dict[str, Any]]) -> list[str]:
    """Every measured split, test-values before test-compositions: from what was seen to what was not."""
    names = {split for summary in summaries.values() for split in summary["scopes"]} - {OVERALL}
    return sorted(names, reverse=True)


def _result_table(split: str, summaries: Mapping[str, dict[str, Any]]) -> ResultTable:
    scopes = {name: found["scopes"][split] for name, found in summaries.items() if split in found["scopes"]}
    columns = columns_of({metric for scope in scopes.values() for metric in scope["metrics"]})
    first = next(iter(scopes.values()))
    rows = {
        name: [Estimate.of(scope["metrics"].get(column)) for column in columns]
        for name, scope in scopes.items()
    }
    return ResultTable(split, first["prompts"], first["ambiguous"], columns, rows)


MEANINGS = {
    "pass@1": "a single answer is right",
    "pass": "one of {k} answers is right",
    "distinct": "different correct strategies among {k} answers",
    "both": "both readings of an ambiguous question among {k} answers",
}


def tiles(material: Material) -> list[Tile]:
    """The first and the last checkpoint that were measured, over all held-out questions."""
    scopes = [summary["scopes"][OVERALL]["metrics"] for summary in material.summaries.values()]
    if not scopes:
        return []
    columns = columns_of(scopes[0].keys() & scopes[-1].keys())
    passes = [column for column in columns if column.startswith("pass")]
    shown = [*dict.fromkeys([passes[0], passes[-1]]), *(c for c in columns if c not in passes)]
    found = []
    for column in shown:
        name, _, k = column.partition("@")
        meaning = MEANINGS.get(column, MEANINGS.get(name, "")).format(k=k)
        before, after = Estimate.of(scopes[0].get(column)), Estimate.of(scopes[-1].get(column))
        found.append(Tile(column, meaning, before, after))
    return found


def capabilities(material: Material) -> tuple[list[str], list[str], list[Capability]]:
    """(metrics, checkpoints, rows); worst change of pass@1 first."""
    summaries = material.summaries
    names = sorted({name for summary in summaries.values() for name in summary["matrix"]})
    known = {
        m for summary in summaries.values() for row in summary["matrix"].values() for m in row["metrics"]
    }
    shown = [metric for metric in columns_of(known) if metric == "pass@1" or metric.startswith("distinct")]
    gates = (material.decision or {}).get("gates", [])
    broken = {gate["name"] for gate in gates if not gate["holds"]}
    rows = []
    for name in names:
        cells = [summary["matrix"].get(name) for summary in summaries.values()]
        present = next(cell for cell in cells if cell)
        values = {m: [Estimate.of(cell["metrics"].get(m) if cell else None) for cell in cells] for m in shown}
        trained = present.get("trained")
        rows.append(Capability(name, trained, present["prompts"], values, f"capability {name}" in broken))
    if shown:
        rows.sort(key=lambda row: (row.change(shown[0]) is None, row.change(shown[0]) or 0.0))
    return shown, list(summaries), rows
