"""Steps are saved whole or not at all, and a resumed loop does each step once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stages.context import KEPT_STEPS, StageContext
from stages.declaration import SeededParams, StageParams
from stages.errors import StageStopped
from stages.spec import EVENTS_FD, Event, Runtime, StageSpec

PROJECT = Path(__file__).parents[2]


class Seen:
    """A state that is the list of steps done."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def save(self, folder: Path) -> None:
        (folder / "seen.json").write_text(json.dumps(self.steps))

    def load(self, folder: Path) -> None:
        self.steps = json.loads((folder / "seen.json").read_text())


def context(work: Path, *, save_every_s: float = 1e-9, seed: int = 0) -> StageContext[StageParams]:
    spec = StageSpec(
        stage="toy",
        node="toy",
        attempt=1,
        params={},
        runtime=Runtime(save_every_s=save_every_s),
        inputs={"data": work / "elsewhere"},
        work=work,
        out=work / "out",
    )
    return StageContext(spec, SeededParams(seed=seed))


def walk(ctx: StageContext[StageParams], total: int, until: int | None = None, **how: bool) -> Seen:
    state = Seen()
    for step in ctx.steps(total, state, **how):
        if step == until:
            raise KeyboardInterrupt
        state.steps.append(step)
        ctx.log(step + 1, square=step * step)
    return state


def saved(work: Path) -> list[str]:
    return sorted(path.name for path in (work / "steps").iterdir())


def test_a_loop_broken_off_goes_on_from_the_last_saved_step(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        walk(context(tmp_path), 9, until=5)
    assert walk(context(tmp_path), 9).steps == list(range(9))


def test_only_the_newest_steps_are_kept(tmp_path):
    walk(context(tmp_path), 9)
    assert saved(tmp_path) == [f"step-{step:09d}" for step in (7, 8)]
    assert KEPT_STEPS == 2


def test_time_decides_when_to_save_unless_each_step_is(tmp_path):
    walk(context(tmp_path, save_every_s=3600), 4)
    assert not (tmp_path / "steps").exists()
    walk(context(tmp_path, save_every_s=3600), 4, save_each=True)
    assert saved(tmp_path) == ["step-000000002", "step-000000003"]


def test_a_step_whose_saving_failed_is_not_seen_and_its_remains_go(tmp_path):
    ctx = context(tmp_path)
    with ctx.save_step(3) as folder:
        (folder / "seen.json").write_text("[0, 1, 2]")
    with pytest.raises(OSError, match="no space"), ctx.save_step(4) as folder:
        (folder / "seen.json").write_text("[0, 1")
        raise OSError("no space")
    assert ctx.latest_step() == (3, tmp_path / "steps" / "step-000000003")
    with ctx.save_step(5) as folder:
        (folder / "seen.json").write_text("[0, 1, 2, 3, 4]")
    assert saved(tmp_path) == ["step-000000003", "step-000000005"]


@pytest.mark.parametrize("boundary", [1, 2, 5, 8, 9, 10])
def test_sigkill_at_any_file_operation_leaves_a_whole_newest_step(tmp_path, boundary):
    """The process kills itself at its n-th rename or removal while saving steps 1, 2, 3, 3 again, 4."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_context import context
left = {boundary}
def counted(real):
    def operation(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return operation
os.rename, os.unlink = counted(os.rename), counted(os.unlink)
ctx = context(Path({str(tmp_path)!r}))
for step in (1, 2, 3, 3, 4):
    with ctx.save_step(step) as folder:
        for part in "ab":
            (folder / part).write_text(str(step))
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    died = subprocess.run([sys.executable, "-c", program], env=environment, timeout=60)
    assert died.returncode == -signal.SIGKILL
    latest = context(tmp_path).latest_step()
    if latest is not None:
        step, folder = latest
        assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": str(step), "b": str(step)}
    assert (latest is not None) or boundary == 1


def test_sigterm_saves_the_step_under_way_and_stops(tmp_path):
    ctx = context(tmp_path, save_every_s=3600)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ctx.listen_for_stop()
        state = Seen()
        with pytest.raises(StageStopped, match="after step 3 of 6"):
            for step in ctx.steps(6, state):
                state.steps.append(step)
                if step == 2:
                    os.kill(os.getpid(), signal.SIGTERM)
        assert ctx.latest_step()[0] == 3
        assert walk(context(tmp_path), 6).steps == list(range(6))
    finally:
        signal.signal(signal.SIGTERM, before)


def test_metrics_of_steps_that_are_done_again_are_dropped(tmp_path):
    ctx = context(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        walk(ctx, 5, until=3)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "square": 9}\n{"step": 5, "squ')
    walk(context(tmp_path), 5)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": step + 1, "square": step * step} for step in range(5)]


def test_seeds_depend_on_purpose_and_seed_only(tmp_path):
    ctx = context(tmp_path)
    assert ctx.seed("rollout", 3) == context(tmp_path).seed("rollout", 3)
    others = [ctx.seed("rollout", 4), ctx.seed("data", 3), context(tmp_path, seed=1).seed("rollout", 3)]
    assert len({ctx.seed("rollout", 3), *others}) == 4
    assert 0 <= ctx.seed("rollout", 3) < 2**63


def test_parameters_without_a_seed_give_none(tmp_path):
    ctx = context(tmp_path)
    ctx.params = StageParams()
    with pytest.raises(TypeError, match="derive it from SeededParams"):
        ctx.seed("rollout", 3)


def test_events_go_over_the_pipe_as_lines(tmp_path, monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setenv(EVENTS_FD, str(writing))
    ctx = context(tmp_path)
    ctx.notice("a fallback\nof two lines")
    walk(ctx, 1)
    ctx._events.close()
    with os.fdopen(reading) as pipe:
        events = [Event.model_validate_json(line) for line in pipe]
    assert [event.kind for event in events] == ["notice", "metrics", "progress"]
    assert events[0].text == "a fallback\nof two lines"
    assert (events[1].scalars, events[2].step, events[2].total) == ({"square": 0}, 1, 1)


def test_inputs_and_outputs_are_folders(tmp_path):
    ctx = context(tmp_path)
    assert ctx.has_input("data") and not ctx.has_input("model")
    assert ctx.input("data") == tmp_path / "elsewhere"
    assert ctx.output("checkpoint") == tmp_path / "out" / "checkpoint"
    assert ctx.output("checkpoint").is_dir()
