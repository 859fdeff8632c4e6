"""Where a result comes from besides its inputs: commit, sources, packages. Recorded, never part of a key."""

import hashlib
import importlib.metadata
import platform
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stages.declaration import stage_package
from tasks.source import PROJECT_ROOT, module_file, stage_folder

GIT_TIMEOUT_S = 10
SOURCE_SUFFIXES = {".py", ".json", ".yaml", ".jinja", ".txt", ".arrow"}
SHARED = ("stages/domains", "stages/engines", "stages/estimators", "stages/sampling", "data_contracts")


@dataclass(frozen=True)
class Git:
    """The project's checkout; all None where git or the checkout is missing."""

    commit: str | None
    dirty: bool | None


@cache
def git() -> Git:
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return Git(None, None)
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return Git(commit.strip(), bool(changes) if changes is not None else None)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(PROJECT_ROOT), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


@cache
def environment_digest() -> str:
    """Of the sorted `name==version` lines of every installed distribution."""
    lines = {
        f"{distribution.name.lower()}=={distribution.version}"
        for distribution in importlib.metadata.distributions()
        if distribution.name
    }
    return _sha256("\n".join(sorted(lines)).encode())


@cache
def sources(stage: str, modules: tuple[str, ...] = ()) -> dict[str, str]:
    """Digests of the folders of ours that a stage can import, and of `modules`, by name.

    A module stands for its package, one outside of any package for its file.
    """
    roots = {"stages": _digest(PROJECT_ROOT / "stages", "*")}
    roots |= {name: _digest(PROJECT_ROOT / name) for name in SHARED}
    if (folder := stage_folder(stage)) is not None:
        roots[stage_package(stage).replace(".", "/")] = _digest(folder)
    for module in modules:
        file = module_file(module)
        if file is not None:
            in_package = (file.parent / "__init__.py").exists()
            roots[module] = _digest(file.parent) if in_package else _digest(file.parent, file.name)
    return roots


def combined(digests: Mapping[str, str]) -> str:
    """One digest for several."""
    return _sha256("\n".join(f"{name} {digest}" for name, digest in sorted(digests.items())).encode())


def _digest(folder: Path, pattern: str = "**/*") -> str:
    """Of the sources in a folder, by path and content."""
    found = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and path.suffix in SOURCE_SUFFIXES:
            content = path.read_bytes()
            found.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
            found.update(content)
    return f"sha256:{found.hexdigest()}"


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def host() -> str:
    return socket.gethostname()


def python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"
