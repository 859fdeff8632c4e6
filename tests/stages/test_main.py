"""A stage's process says what is wrong with its SPEC.json or its parameters in one sentence, on the pipe."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stages.errors import ExitCode
from stages.spec import EVENTS_FD, OWNER_PID, Event

PROJECT = Path(__file__).parents[2]


def start(spec: dict[str, Any], folder: Path) -> tuple[int, Event, str]:
    """Exit code, the last event, and the log."""
    file = folder / "spec.json"
    file.write_text(json.dumps(spec))
    reading, writing = os.pipe()
    done = subprocess.run(
        [sys.executable, "-m", "stages", str(file)],
        env={**os.environ, EVENTS_FD: str(writing), OWNER_PID: str(os.getpid())},
        pass_fds=(writing,),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        *_, last = pipe.read().splitlines()
    return done.returncode, Event.model_validate_json(last), done.stderr


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "work").mkdir()
    return {
        "stage": "promote", "node": "promote", "attempt": 1, "params": {}, "runtime": {},
        "inputs": {}, "work": str(tmp_path / "work"), "out": str(tmp_path / "out"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"params": {"sigmas": -1, "gain": 3}}, ["the parameters of promote", "sigmas: ", "gain: "]),
        ({"runtime": {"threads": "many"}}, ["spec.json", "runtime.threads: "]),
        ({"stage": "nowhere"}, ["there is no stage 'nowhere'"]),
    ],
)
def test_what_does_not_validate_is_named_in_one_sentence(tmp_path, spec, changes, told):
    code, event, log = start({**spec, **changes}, tmp_path)
    assert code == ExitCode.USAGE
    assert event.kind == "failed" and event.text is not None
    assert all(piece in event.text for piece in told)
    assert "\n" not in event.text and "further information" not in event.text
    assert "Traceback" in log


def test_any_other_failure_names_its_kind(tmp_path, spec):
    code, event, _ = start(spec, tmp_path)  # promote without the evaluation of its base
    assert code == ExitCode.FAILED
    assert event.text == "KeyError: 'base'"
