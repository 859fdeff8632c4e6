"""Where the project's sources and those of its stages lie."""

import importlib.util
from pathlib import Path

import stages
from stages.declaration import stage_package

PROJECT_ROOT = Path(stages.__file__).resolve().parent.parent


def stage_folder(stage: str) -> Path | None:
    """The folder of the stage's package; a user's stage lies outside the project."""
    spec = importlib.util.find_spec(stage_package(stage))
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def module_file(module: str) -> Path | None:
    """The source file of a module that can be imported."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def import_root(stage: str) -> Path:
    """The folder that must be on the import path for the stage's package to be found."""
    folder = stage_folder(stage)
    return folder.parents[stage_package(stage).count(".")] if folder else PROJECT_ROOT
