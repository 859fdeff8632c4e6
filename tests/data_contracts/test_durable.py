"""A file that is written is the old one or the new one, never a part of it."""

import os

import pytest

from data_contracts.durable import fsync_tree, replace, write_atomic


def test_the_folder_is_made_and_nothing_is_left_beside(tmp_path):
    path = tmp_path / "new" / "file.json"
    for text in ("first", "zweite ü"):
        write_atomic(path, text)
        assert path.read_text(encoding="utf-8") == text
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("durable", [True, False])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, durable):
    path = tmp_path / "file.json"
    write_atomic(path, "old")

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, "new", durable=durable)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_are_flushed_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    done = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        done.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(str(tmp_path)))
        real_fsync(descriptor)

    def rename(fresh, path):
        done.append("rename")
        real_replace(fresh, path)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    (tmp_path / "fresh").write_text("x")
    replace(tmp_path / "fresh", tmp_path / "final")
    assert done == ["/fresh", "rename", ""]
    done.clear()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").touch()
    fsync_tree(tmp_path)
    assert sorted(done) == ["", "/final", "/inner", "/inner/file"]
