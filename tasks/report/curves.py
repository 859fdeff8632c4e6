"""Which charts a page has, from what the run has made."""

import statistics

from markupsafe import Markup

from data_contracts.evaluation.metric import Metric
from tasks.report import figures
from tasks.report.material import TRAINING, Material
from tasks.store.manifest import Manifest

TITLES = {
    "loss": "loss",
    "reverse_kl": "reverse KL to the teacher",
    "pass_rate": "reward: share of right samples",
    "distinct_correct": "distinct correct strategies a group",
    "entropy": "entropy (nats a token)",
    "zero_variance": "share of zero-variance groups",
    "replay_nll": "replay loss (NLL of elites)",
    "truncated": "share of truncated samples",
}
METRICS = {
    "opd": ("reverse_kl",),
    "rl": ("pass_rate", "distinct_correct", "entropy", "zero_variance", "replay_nll", "truncated"),
}
SUPERVISED = ("loss",)


def training(material: Material) -> dict[str, Markup]:
    """A chart for each training node that has logged anything."""
    found = {}
    for node in material.nodes:
        if node.stage not in TRAINING and node.node not in TRAINING:
            continue
        series = material.metrics(node)
        shown = [name for name in METRICS.get(node.stage, SUPERVISED) if series.get(name)]
        switch = material.switch if node.stage == "opd" else None
        count = len(shown) + bool(switch)
        if count:
            with figures.panels(count) as (figure, axes):
                for place, name in enumerate(shown):
                    line = figures.colour(node.stage, place)
                    figures.draw_series(axes[place], series[name], TITLES[name], line)
                if switch:
                    figures.draw_validation(axes[-1], switch)
                for one in axes:
                    one.set_xlabel("step")
                _mark_alarms(axes[: len(shown)], series.get("width_alarm", []))
                found[node.node] = figures.svg(figure, f"training curves of {node.node}")
    return found


def _mark_alarms(axes: list["figures.Axes"], alarms: figures.Points) -> None:
    """The steps at which distinct fell while reward rose."""
    for step, raised in alarms:
        if raised:
            for one in axes:
                one.axvline(step, color=figures.ALARM, alpha=0.25, linewidth=2)


def coverage(material: Material) -> dict[str, Markup]:
    """By split: pass@k, distinct@k and both@k against k, a line for each checkpoint."""
    by_checkpoint = {name: _points(material, manifest) for name, manifest in material.evaluations.items()}
    splits = sorted({split for points in by_checkpoint.values() for _, split in points}, reverse=True)
    found = {}
    for split in splits:
        curves = {
            metric: {
                name: points[metric, split]
                for name, points in by_checkpoint.items()
                if points.get((metric, split))
            }
            for metric in Metric
        }
        drawn = {metric: lines for metric, lines in curves.items() if lines}
        with figures.panels(len(drawn)) as (figure, axes):
            for one, (metric, lines) in zip(axes, drawn.items(), strict=True):
                figures.draw_against_k(one, lines, f"{metric}@k")
            axes[0].legend(loc="lower right", fontsize=8.5)
            found[split] = figures.svg(figure, f"coverage on {split}")
    return found


Curve = list[tuple[int, float, float]]


def _points(material: Material, manifest: Manifest) -> dict[tuple[Metric, str], Curve]:
    """(k, mean, standard error) over prompts by metric and split, from evaluation/1."""
    from data_contracts.dataset import read

    folder = material.folder(manifest, "evaluation")
    if folder is None:
        return {}
    values: dict[tuple[Metric, str], dict[int, list[float]]] = {}
    columns = ["split", "k", *(metric.column for metric in Metric)]
    for row in read(folder, "evaluation/1", columns=columns).to_pylist():
        for metric in Metric:
            if (value := row[metric.column]) is not None:
                values.setdefault((metric, row["split"]), {}).setdefault(row["k"], []).append(value)
    return {
        place: [(k, statistics.fmean(found), _error(found)) for k, found in sorted(by_k.items())]
        for place, by_k in values.items()
    }


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def archive(material: Material) -> Markup | None:
    """Strategies found against samples drawn."""
    points = [(float(point["samples"]), float(point["cells"])) for point in material.growth]
    if not points:
        return None
    with figures.panels(1) as (figure, (axes,)):
        drawn, cells = [0.0, *(x for x, _ in points)], [0.0, *(y for _, y in points)]
        axes.fill_between(drawn, cells, color=figures.COLOURS["base"], alpha=0.14, linewidth=0)
        axes.plot(drawn, cells, color=figures.COLOURS["base"], marker="o", markersize=3.5)
        axes.set_title("strategies in the archive")
        axes.set_xlabel("samples drawn from the frozen base")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        return figures.svg(figure, "growth of the archive")
