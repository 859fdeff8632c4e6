"""The command line and environment of a stage's process."""

import os
import sys
from pathlib import Path

from stages.spec import OWNER_PID, Runtime
from tasks.process.cores import wait_policy
from tasks.servers.settings import NO_TELEMETRY
from tasks.source import PROJECT_ROOT, import_root

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def stage_command(spec_file: Path, runtime: Runtime) -> list[str]:
    return [runtime.python or sys.executable, "-m", "stages", str(spec_file)]


def stage_environment(stage: str, runtime: Runtime) -> dict[str, str]:
    """Ours, with the threads fixed, telemetry off, and the project and the stage importable."""
    environment = dict(os.environ)
    environment.update(NO_TELEMETRY)
    environment.update({name: str(runtime.threads) for name in THREAD_VARIABLES})
    if policy := wait_policy(runtime.threads):
        environment["OMP_WAIT_POLICY"] = policy
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment["PYTHONUNBUFFERED"] = "1"
    environment[OWNER_PID] = str(os.getpid())
    roots = dict.fromkeys([str(PROJECT_ROOT), str(import_root(stage))])
    inherited = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join([*roots, *([inherited] if inherited else [])])
    return environment
