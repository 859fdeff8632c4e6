"""On which machine, from which commit: what every result file says of itself."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def provenance() -> dict[str, Any]:
    """`commit` ends in +changes where tracked files differ from it."""
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "stages", "benchmarks/*.py")
    return {"machine": machine(), "commit": head + ("+changes" if changed else "")}


def machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": _torch_version(),
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _torch_version() -> str:
    from importlib.metadata import version

    return version("torch")
