"""The command line and environment of a stage's process."""

import importlib.util
import os
import sys
from pathlib import Path

import stages
from stages.declaration import stage_package
from stages.spec import OWNER_PID, Runtime

PROJECT_ROOT = Path(stages.__file__).resolve().parent.parent

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GX_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def stage_command(spec_file: Path, runtime: Runtime) -> list[str]:
    python = runtime.python or sys.executable
    if runtime.gpus > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={runtime.gpus}"]
        return [python, *launcher, "-m", "stages", str(spec_file)]
    return [python, "-m", "stages", str(spec_file)]


def stage_environment(stage: str, runtime: Runtime) -> dict[str, str]:
    """Ours, with the threads fixed, telemetry off, and the project and the stage importable."""
    environment = dict(os.environ)
    environment.update(TELEMETRY_OFF)
    environment.update({name: str(runtime.threads) for name in THREAD_VARIABLES})
    environment["OMP_WAIT_POLICY"] = "PASSIVE"  # spinning threads starve each other on a busy machine
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment["PYTHONUNBUFFERED"] = "1"
    environment.pop(OWNER_PID, None)
    if runtime.gpus <= 1:
        environment[OWNER_PID] = str(os.getpid())
    roots = dict.fromkeys([str(PROJECT_ROOT), str(import_root(stage))])
    inherited = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join([*roots, *([inherited] if inherited else [])])
    return environment


def import_root(stage: str) -> Path:
    """The folder from which the stage's package is imported; a user's stage lives outside the project."""
    package = stage_package(stage)
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return PROJECT_ROOT
    return Path(next(iter(spec.submodule_search_locations))).resolve().parents[package.count(".")]
