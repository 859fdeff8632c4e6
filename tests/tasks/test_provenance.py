"""Commit, sources and packages of a result."""

import hashlib
import importlib.metadata
import subprocess

import pytest

from tasks import provenance


@pytest.fixture(autouse=True)
def fresh():
    """What is remembered for a process's life is forgotten around each test."""
    caches = [provenance.git, provenance.environment_digest, provenance.sources]
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    def git(*arguments: str) -> str:
        names = ["-c", "user.name=t", "-c", "user.email=t@t"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *names, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    monkeypatch.setattr(provenance, "PROJECT_ROOT", tmp_path)
    return tmp_path, git


def test_the_commit_and_whether_it_was_changed(checkout):
    folder, git = checkout
    assert provenance.git() == provenance.Git(git("rev-parse", "HEAD").strip(), False)
    provenance.git.cache_clear()
    (folder / "file").write_text("2")
    assert provenance.git().dirty is True


def test_without_git_or_a_checkout_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PROJECT_ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git() == provenance.Git(None, None)
    provenance.git.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git() == provenance.Git(None, None)


def test_the_environment_is_every_package_and_version():
    digest = provenance.environment_digest()
    lines = {f"{d.name.lower()}=={d.version}" for d in importlib.metadata.distributions() if d.name}
    assert f"pydantic=={importlib.metadata.version('pydantic')}" in lines
    assert digest == f"sha256:{hashlib.sha256(chr(10).join(sorted(lines)).encode()).hexdigest()}"


def test_sources_follow_the_content_of_the_stages_folder(tmp_path, monkeypatch):
    stage = tmp_path / "own_stages" / "poem"
    stage.mkdir(parents=True)
    (stage / "__init__.py").write_text("")
    (stage / "stage.py").write_text("a = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = provenance.sources("own_stages.poem")
    (stage / "__pycache__").mkdir()
    (stage / "__pycache__" / "stage.pyc").write_bytes(b"0")
    provenance.sources.cache_clear()
    assert provenance.sources("own_stages.poem") == first
    (stage / "stage.py").write_text("a = 2\n")
    provenance.sources.cache_clear()
    assert provenance.sources("own_stages.poem") != first


def test_sources_are_of_all_that_a_stage_can_import_of_ours(tmp_path, monkeypatch):
    package = tmp_path / "own_domains"
    package.mkdir()
    for name in ("__init__", "poems", "rhymes"):
        (package / f"{name}.py").write_text("")
    (tmp_path / "lone.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    before = provenance.sources("opd", ("own_domains.poems", "lone"))
    assert {"stages", "stages/opd", "stages/domains", "stages/estimators", "data_contracts"} <= before.keys()
    (package / "rhymes.py").write_text("a = 1")
    (tmp_path / "beside.py").write_text("a = 1")
    provenance.sources.cache_clear()
    after = provenance.sources("opd", ("own_domains.poems", "lone"))
    assert {name for name in before if before[name] != after[name]} == {"own_domains.poems"}
    assert provenance.combined(before) != provenance.combined(after)
