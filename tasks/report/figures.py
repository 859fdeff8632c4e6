"""Charts as inline SVG, by matplotlib. Ink and grid take the colours of the page, so that a chart reads in
the dark as well; nothing is opened in pyplot, so nothing has to be closed.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRID = "#010203", "#040506"  # stand-ins, replaced by the page's own colours
COLOURS = {"base": "#8592a8", "sft": "#e0912f", "opd": "#21a08d", "rl": "#7a63f0"}
SPARE = ("#d9577f", "#3f8fe0", "#8aa63a", "#b06fd0")
LINE, ALARM = "#3f8fe0", "#d64545"
PANEL_INCHES = (3.55, 2.35)
PIXELS_PER_INCH = 93
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
Points = Sequence[tuple[float, float]]


def colour(name: str, place: int = 0) -> str:
    return COLOURS.get(name, SPARE[place % len(SPARE)])


@contextmanager
def panels(count: int, columns: int = 3) -> Iterator[tuple["Figure", list["Axes"]]]:
    """A figure of `count` axes in our style, in rows of at most `columns`."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows))
        axes = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
        for each in axes:
            each.locator_params(axis="x", nbins=5)  # so that long numbers do not run into each other
        yield figure, axes


def svg(figure: "Figure", label: str) -> Markup:
    """The figure as an element of the page: no declaration, no metadata, no address of any kind."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": label}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"font: (bold |italic |\d+ )*([\d.]+)px [^;\"]*", r"font-size: \2px; font-weight: \1", text)
    text = text.replace("font-weight: ;", "").replace('font-weight: "', '"').replace("bold ;", "bold;")
    text = text.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    opening, rest = text.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    size = f'style="width:{figure.get_figwidth() * PIXELS_PER_INCH:.0f}px"'
    opening = opening.replace("<svg", f'<svg role="img" aria-label="{escape(label)}" {size}')
    return Markup(f"{opening}>{rest}")


def draw_series(axes: "Axes", points: Points, title: str, line: str = LINE) -> None:
    """The raw series thin, its running mean over it."""
    steps, values = [step for step, _ in points], [value for _, value in points]
    window = max(1, len(values) // 25)
    if window > 1:
        axes.plot(steps, values, color=line, alpha=0.28, linewidth=0.9)
    axes.plot(steps, running_mean(values, window), color=line, marker="o" if len(values) == 1 else None)
    axes.set_title(title)
    axes.margins(x=0.02)
    if not any(values):  # an axis around nothing would show shares below 0
        axes.set_ylim(0, 1)


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Of the last `window` values, fewer at the start."""
    found, total = [], 0.0
    for place, value in enumerate(values):
        total += value
        if place >= window:
            total -= values[place - window]
        found.append(total / min(window, place + 1))
    return found


def draw_against_k(
    axes: "Axes", curves: Mapping[str, Sequence[tuple[int, float, float]]], title: str
) -> None:
    """(k, mean, standard error) of each checkpoint, k doubling along the axis."""
    for place, (name, points) in enumerate(curves.items()):
        ks = [k for k, _, _ in points]
        means = [mean for _, mean, _ in points]
        low = [mean - error for _, mean, error in points]
        high = [mean + error for _, mean, error in points]
        axes.fill_between(ks, low, high, color=colour(name, place), alpha=0.14, linewidth=0)
        axes.plot(ks, means, color=colour(name, place), marker="o", markersize=3.5, label=name)
    axes.set_xscale("log", base=2)
    shown = sorted({k for points in curves.values() for k, _, _ in points})
    axes.set_xticks(shown, [str(k) for k in shown])
    axes.minorticks_off()
    axes.set_title(title)
    axes.set_xlabel("k")


def draw_validation(axes: "Axes", switch: Mapping[str, Any]) -> None:
    """The held-out score that ends distillation, its plateau shaded and the switch to RL marked."""
    curve = switch["curve"]
    steps = [point["step"] for point in curve]
    scores = [point["score"] for point in curve]
    errors = [point["standard_error"] for point in curve]
    best = max(range(len(scores)), key=scores.__getitem__)
    line = COLOURS["opd"]
    if switch["switch_step"] > steps[best]:
        axes.axvspan(steps[best], switch["switch_step"], color=COLOURS["sft"], alpha=0.16, linewidth=0)
    axes.errorbar(
        steps, scores, yerr=errors, color=line, marker="o", markersize=3.5, capsize=2, elinewidth=0.9
    )
    axes.axvline(switch["switch_step"], color=ALARM, linestyle=(0, (4, 3)), linewidth=1.4)
    axes.annotate(
        f"switch at {switch['switch_step']}",
        (switch["switch_step"], min(scores)),
        xytext=(-5, 2),
        textcoords="offset points",
        ha="right",
        color=ALARM,
        fontsize=8.5,
    )
    axes.set_title(f"OPD validation ({switch['reason']})")
    axes.margins(x=0.04)
