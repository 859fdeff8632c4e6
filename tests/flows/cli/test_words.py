"""Small pure pieces of what is shown."""

import io

import pytest
from rich.console import Console

from flows.cli.progress import Bars, Lines, Pace
from flows.cli.results import cell, verdict_lines
from flows.cli.sample import returned, verdict
from flows.cli.words import rate, seconds, short
from stages.sampling.ask import Sample
from stages.spec import Event, EventKind
from tasks.report.numbers import Estimate
from tasks.runs import NodeRecord, NodeState


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, ""),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7380, "2 h 03 min"),
    ],
)
def test_seconds(value, told):
    assert seconds(value) == told


def test_rate_and_digest():
    assert (rate(12.34), rate(0.25)) == ("12.3/s", "4.0 s each")
    assert short("sha256:0123456789abcdef") == "0123456789"


def progress(step: int, total: int, unit: str = "steps") -> Event:
    return Event(kind=EventKind.PROGRESS, step=step, total=total, unit=unit)


def test_pace_tells_rate_and_time_left():
    pace = Pace()
    for step in range(11):
        pace.update(progress(step, 20), now=100 + step * 0.5)
    assert pace.rate == pytest.approx(2.0)
    assert pace.left_s == pytest.approx(5.0)
    assert str(pace) == "steps 10/20, 2.0/s, 5.0 s left"


def test_pace_begins_anew_with_another_unit():
    pace = Pace()
    pace.update(progress(1, 10), now=1)
    pace.update(progress(2, 10), now=2)
    pace.update(progress(1, 5, "parts"), now=3)
    assert (str(pace), pace.left_s) == ("parts 1/5", None)


def test_lines_are_sparse():
    told: list[str] = []
    lines = Lines(told.append, every_s=3600)
    lines.on_node(NodeRecord(node="rl", stage="rl", state=NodeState.RUNNING))
    lines.on_event("rl", Event(kind=EventKind.STARTED))
    for step in range(100):
        lines.on_event("rl", progress(step, 100))
    lines.on_event("rl", Event(kind=EventKind.NOTICE, text="distinct falls while reward rises"))
    lines.on_node(
        NodeRecord(node="rl", stage="rl", state=NodeState.COMPLETED, seconds=12, digest="sha256:ab")
    )
    assert told == ["rl: started", "rl: distinct falls while reward rises", "rl: completed in 12.0 s ab"]


def test_lines_tell_progress_when_it_is_time():
    told: list[str] = []
    lines = Lines(told.append, every_s=0)
    lines.on_event("rl", progress(3, 10))
    assert told == ["rl: steps 3/10"]


def test_bars_show_step_rate_and_time_left_and_leave_lines_behind():
    console = Console(file=io.StringIO(), force_terminal=True, highlight=False, width=120)
    with Bars(console) as bars:
        bars.on_node(NodeRecord(node="rl", stage="rl", state=NodeState.RUNNING))
        bars.on_event("rl", Event(kind=EventKind.RESUMED, step=4, total=10, unit="steps"))
        bars.on_event("rl", progress(5, 10))
        bars._progress.refresh()
        bars.on_node(NodeRecord(node="rl", stage="rl", state=NodeState.STOPPED))
    shown = console.file.getvalue()
    assert "rl: goes on from steps 4 of 10" in shown
    assert "steps 5/10" in shown and "left" in shown
    assert "rl: stopped" in shown


def test_cells_show_the_spread():
    assert cell(Estimate(0.5, 0.0251)) == "0.500 ± 0.025"
    assert cell(Estimate(12.0, 1.0)) == "12.0 ± 1.000"
    assert cell(Estimate(0.5)) == "0.500"
    assert cell(Estimate(None)) == "–"  # noqa: RUF001


def test_a_refused_promotion_tells_each_broken_gate():
    gates = [
        {"name": "gain", "holds": True, "sentence": "fine"},
        {"name": "width", "holds": False, "sentence": "distinct@128 fell by 2"},
    ]
    assert verdict_lines({"promoted": False, "gates": gates}) == [
        "not promoted: 1 of 2 gates do not hold",
        "  width: distinct@128 fell by 2",
    ]
    assert verdict_lines({"promoted": True, "gates": gates[:1]}) == ["promoted: all 1 gates hold"]
    assert verdict_lines(None) == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"reward": 1.0, "unscorable": None, "reading": "a", "stop_reason": "eos"}, "correct (a)"),
        ({"reward": 0.0, "unscorable": None, "reading": None, "stop_reason": "eos"}, "wrong"),
        ({"reward": 0.0, "unscorable": None, "reading": None, "stop_reason": "length"}, "wrong (cut off)"),
        ({"reward": None, "unscorable": "wall_clock"}, "unscorable (wall_clock)"),
        ({"reward": None, "unscorable": None}, ""),
    ],
)
def test_a_verdict_is_never_guessed(answer, told):
    assert verdict(Sample(text="", logprob=0.0, **{"stop_reason": "eos", **answer})) == told


def test_rows_or_the_reason_for_none():
    sample = Sample(text="", logprob=0.0, stop_reason="eos")
    assert returned(sample.model_copy(update={"rows": [[1, "a"], [None, 2.5]]})) == ["1, a", "None, 2.5"]
    assert returned(sample.model_copy(update={"refused": "vm_steps"})) == ["no result: vm_steps"]
