"""A checkpoint that somebody brings: the same tensors, or one sentence that says what is missing."""

import json
import shutil
from pathlib import Path

import pytest

from data_contracts.checkpoint import (
    StageRecord,
    TrainingRecord,
    check,
    facts,
    read_record,
    tensor_digest,
    tokenizer_digest,
    write_record,
)
from stages.adopt.params import AdoptParams
from stages.adopt.stage import run
from stages.archive.stage import refuse_rl_ancestor
from stages.errors import GuardError, UsageError


@pytest.fixture
def brought(world, tmp_path):
    """As downloaded: no record of ours."""
    folder = tmp_path / "brought"
    shutil.copytree(world.random_model("random", seed=5), folder)
    (folder / "training_record.json").unlink()
    return folder


def adopt(world, tmp_path, source, **params):
    attempt = world.attempt(tmp_path / "adopt", AdoptParams(source=str(source), **params))
    run(attempt.context())
    return attempt.out("checkpoint")


def edit(path: Path, change) -> None:
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def test_tensors_and_tokenizer_are_those_of_the_folder(world, tmp_path, brought):
    checkpoint = adopt(world, tmp_path, brought)
    assert check(checkpoint) == []
    assert tensor_digest(checkpoint) == tensor_digest(brought)
    assert tokenizer_digest(checkpoint) == tokenizer_digest(brought)
    assert read_record(checkpoint) == TrainingRecord((StageRecord("adopt", 0),), 0, "")
    refuse_rl_ancestor(checkpoint)


def test_generation_ends_at_the_tokenizers_eos(world, tmp_path, brought):
    """Many a hub model lists several; the engine stops at the one that answers are trained with."""
    edit(
        brought / "generation_config.json", lambda c: c.update(eos_token_id=[5, world.tokenizer.eos_token_id])
    )
    assert facts(adopt(world, tmp_path, brought)).eos_ids == (world.tokenizer.eos_token_id,)


def test_stated_rl_is_recorded_and_then_the_archive_refuses(world, tmp_path, brought):
    checkpoint = adopt(world, tmp_path, brought, rl_steps=7)
    assert read_record(checkpoint).rl_steps == 7
    with pytest.raises(GuardError, match="7 RL steps"):
        refuse_rl_ancestor(checkpoint)


def test_adoption_does_not_wash_rl_off_a_checkpoint_of_ours(world, tmp_path, brought):
    write_record(brought, TrainingRecord((StageRecord("rl", 40),), rl_steps=40))
    assert read_record(adopt(world, tmp_path, brought)).rl_steps == 40


@pytest.mark.parametrize("source", ["/no/such/folder", "no such model"])
def test_a_source_that_is_not_there_is_one_sentence(world, tmp_path, source, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="neither a Hugging Face folder nor a model"):
        adopt(world, tmp_path, source)


def test_an_empty_folder_and_torn_weights_are_one_sentence(world, tmp_path, brought):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="neither a Hugging Face folder"):
        adopt(world, tmp_path, empty)
    torn = (brought / "model.safetensors").read_bytes()
    (brought / "model.safetensors").write_bytes(torn[: len(torn) // 2])
    with pytest.raises(UsageError, match="neither a Hugging Face folder"):
        adopt(world, tmp_path, brought)


def test_a_model_without_a_chat_template_is_refused(world, tmp_path, brought):
    (brought / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match="no chat template"):
        adopt(world, tmp_path, brought)


def test_a_model_without_a_padding_token_is_refused(world, tmp_path, brought):
    edit(brought / "tokenizer_config.json", lambda c: c.pop("pad_token"))
    with pytest.raises(UsageError, match="no PAD token"):
        adopt(world, tmp_path, brought)
