"""Runs of the lineage tests' miniature pipeline, with their pages."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tasks.report import write
from tasks.store.home import Home

BUILDER = Path(__file__).parents[1] / "lineage" / "conftest.py"


def pipeline(home: Home, run_id: str) -> Any:
    spec = importlib.util.spec_from_file_location("miniature_pipeline", BUILDER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Pipeline(home, run_id)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return pipeline(Home(tmp_path_factory.mktemp("home")), "text2sql-a").run()


@pytest.fixture(scope="module")
def page(finished: Any) -> str:
    return write(finished.home, finished.run_id).read_text()


@pytest.fixture
def new_pipeline(tmp_path: Path) -> Any:
    """A run of which nothing has been done."""
    return pipeline(Home(tmp_path / "home"), "text2sql-n")
