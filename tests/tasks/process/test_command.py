"""The command and environment of a stage's process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.errors import UsageError
from stages.spec import OWNER_PID, Runtime
from tasks.process.command import stage_command, stage_environment
from tasks.source import PROJECT_ROOT, import_root


def test_one_process_is_the_module_itself_in_the_chosen_interpreter():
    spec = Path("/there/spec.json")
    assert stage_command(spec, Runtime()) == [sys.executable, "-m", "stages", str(spec)]
    assert stage_command(spec, Runtime(python="/opt/py"))[0] == "/opt/py"


def test_threads_and_telemetry_are_fixed(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    environment = stage_environment("base", Runtime(threads=3))
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "3"
    assert environment["TOKENIZERS_PARALLELISM"] == "false"
    assert environment["DO_NOT_TRACK"] == "1"
    assert environment["HF_HUB_OFFLINE"] == "0"
    assert environment[OWNER_PID] == str(os.getpid())


def test_the_project_and_a_users_stage_are_importable_from_anywhere(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    environment = stage_environment("toy_stages.counter", Runtime())
    roots = environment["PYTHONPATH"].split(os.pathsep)
    assert roots == [str(PROJECT_ROOT), str(import_root("toy_stages.counter")), "/users/own"]
    program = "import stages.spec, toy_stages.counter.params"
    assert subprocess.run([sys.executable, "-c", program], cwd="/", env=environment).returncode == 0


def test_a_stage_that_is_not_there_is_refused_in_one_sentence():
    from stages.declaration import declaration

    with pytest.raises(UsageError, match=r"no stage 'nowhere'.*stages\.nowhere"):
        declaration("nowhere")
    with pytest.raises(UsageError, match=r"no stage 'toy_stages\.none'"):
        declaration("toy_stages.none")
