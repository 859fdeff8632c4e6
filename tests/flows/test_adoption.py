"""What a user may write for a model: a folder, a hub id, or either with the RL it has behind it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from flows.adoption import Brought, adopted
from stages.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "model"
    found.mkdir()
    (found / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 6}))
    (found / "tokenizer.json").write_text("{}")
    save_file({"model.embed_tokens.weight": np.ones((6, 2), np.float32)}, found / "model.safetensors")
    return found


def test_a_folder_is_told_by_its_content(folder: Path) -> None:
    before = adopted(str(folder))
    assert before.source == str(folder) and before.content.startswith("sha256:")
    assert adopted(str(folder)) == before
    save_file({"model.embed_tokens.weight": np.zeros((6, 2), np.float32)}, folder / "model.safetensors")
    assert adopted(str(folder)).content != before.content


def test_a_relative_folder_is_recorded_by_its_absolute_path(folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert adopted("model").source == adopted("./model").source == str(folder)


def test_a_hub_id_is_left_to_the_stage(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = adopted("owner/name")
    assert (found.source, found.content, found.rl_steps) == ("owner/name", "", 0)


def test_what_its_maker_says_of_rl_is_kept(folder: Path) -> None:
    assert adopted(Brought(source=str(folder), rl_steps=40)).rl_steps == 40
    assert adopted(Brought(source="owner/name", rl_steps=7)).rl_steps == 7


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere", "~/nowhere"])
def test_a_path_without_a_checkpoint_is_one_sentence(source: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"is not a Hugging Face checkpoint: there is no config\.json"):
        adopted(source)
