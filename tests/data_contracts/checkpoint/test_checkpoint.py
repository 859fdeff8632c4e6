"""The checkpoint contract on genuine files: `tokenizers` writes the tokenizer, `safetensors` the weights."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

from data_contracts.breach import ContractBreach
from data_contracts.checkpoint import (
    StageRecord,
    TrainingRecord,
    chat_template,
    chat_template_digest,
    check,
    facts,
    read_record,
    record_after,
    tensor_digest,
    tokenizer_digest,
    write_record,
)

VOCABULARY = {"<pad>": 0, "<eos>": 1, "<end_of_turn>": 2, "a": 3, "b": 4, "ab": 5}
TEMPLATE = "{% for m in messages %}{{ m.content }}<end_of_turn>{% endfor %}"
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(name: str = "c", generation: dict[str, Any] | None = None, template: str = TEMPLATE) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        tokenizer = Tokenizer(models.BPE(vocab=VOCABULARY, merges=[("a", "b")]))
        tokenizer.save(str(folder / "tokenizer.json"))
        weights = {
            "model.embed_tokens.weight": np.arange(16, dtype=np.float32).reshape(8, 2),
            "model.norm.weight": np.ones(2, np.float32),
        }
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        write(folder / "config.json", architectures=["LlamaForCausalLM"], vocab_size=8, model_type="llama")
        write(folder / "generation_config.json", **(generation or {"eos_token_id": 1, "pad_token_id": 0}))
        write(folder / "tokenizer_config.json", eos_token="<eos>", pad_token="<pad>")
        (folder / "chat_template.jinja").write_text(template)
        write_record(folder, TrainingRecord((StageRecord("base", 900),)))
        return folder

    return build


def write(path: Path, **content: Any) -> None:
    path.write_text(json.dumps(content))


def sentences(folder: Path) -> str:
    return "; ".join(str(breach) for breach in check(folder))


def test_facts_of_a_good_checkpoint(make: Make) -> None:
    folder = make()
    assert check(folder) == []
    found = facts(folder)
    assert (found.eos_ids, found.pad_id, found.vocabulary_size) == ((1,), 0, 8)
    assert (found.dtype, found.architecture, found.parameters) == ("float32", "LlamaForCausalLM", 18)
    assert found.tokenizer_digest == tokenizer_digest(folder)
    assert found.chat_template_digest == "sha256:" + hashlib.sha256(TEMPLATE.encode()).hexdigest()
    assert json.loads(json.dumps(found.to_json()))["eos_ids"] == [1]


def test_tensor_digest_is_of_content(make: Make) -> None:
    folder = make()
    expected = hashlib.sha256(b"posttrain tensors 1")
    for name, values in (
        ("model.embed_tokens.weight", np.arange(16, dtype="<f4").reshape(8, 2)),
        ("model.norm.weight", np.ones(2, "<f4")),
    ):
        expected.update(json.dumps([name, "F32", list(values.shape)]).encode() + values.tobytes())
    assert tensor_digest(folder) == f"sha256:{expected.hexdigest()}"


def test_sharded_checkpoints_are_read_through_their_index(make: Make) -> None:
    whole, sharded = make("whole"), make("sharded")
    (sharded / "model.safetensors").unlink()
    save_file({"model.norm.weight": np.ones(2, np.float32)}, sharded / "model-1.safetensors")
    embedding = np.arange(16, dtype=np.float32).reshape(8, 2)
    save_file({"model.embed_tokens.weight": embedding}, sharded / "model-2.safetensors")
    places = {
        "model.norm.weight": "model-1.safetensors",
        "model.embed_tokens.weight": "model-2.safetensors",
    }
    write(sharded / "model.safetensors.index.json", weight_map=places)
    assert tensor_digest(sharded) == tensor_digest(whole)
    assert facts(sharded) == facts(whole)
    write(
        sharded / "model.safetensors.index.json",
        weight_map={**places, "lm_head.weight": "model-1.safetensors"},
    )
    assert "every tensor of the index present: missing ['lm_head.weight']" in sentences(sharded)
    (sharded / "model-1.safetensors").unlink()
    assert "model-1.safetensors present" in sentences(sharded)


def test_what_is_missing_or_torn_is_named(make: Make) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors", "training_record.json"):
        folder = make(f"without-{name}")
        (folder / name).unlink()
        assert f"{name} present" in sentences(folder)
        with pytest.raises(ContractBreach):
            raise ContractBreach("checkpoint", check(folder))
    torn = make("torn")
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    assert "a whole safetensors file" in sentences(torn)
    weights.write_bytes(b"\xff" * 100)
    assert "the header is longer than the file" in sentences(torn)
    (torn / "config.json").write_text("{")
    assert "config.json readable" in sentences(torn)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_weights_that_are_not_finite_are_refused(make: Make, bad: float, dtype: type) -> None:
    folder = make()
    embedding = np.arange(16, dtype=dtype).reshape(8, 2)
    embedding[7, 1] = bad
    limits = np.array([np.finfo(dtype).max, np.finfo(dtype).tiny, -np.finfo(dtype).max, 0], dtype)
    save_file({"model.embed_tokens.weight": embedding, "limits": limits}, folder / "model.safetensors")
    (breach,) = check(folder)
    assert breach.detail == "NaN or infinity in model.embed_tokens.weight"


def test_bfloat16_is_looked_into_without_a_library_that_has_it(make: Make) -> None:
    folder = make()
    bits = np.array([0x3F80, 0x7F7F, 0xFF7F, 0x0001], "<u2")  # 1, largest, smallest, tiniest
    for value, finite in ((0x3F80, True), (0x7F80, False), (0xFFC0, False)):  # 1, infinity, NaN
        bits[0] = value
        save_file({"w": bits}, folder / "model.safetensors")
        raw = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(raw.replace(b'"U16"', b'"BF16"').replace(b"}} ", b"}}", 1))
        assert facts(folder).dtype == "bfloat16"
        assert (check(folder) == []) is finite


def test_vocabularies_that_do_not_fit_are_refused(make: Make) -> None:
    folder = make()
    write(folder / "config.json", architectures=["L"], vocab_size=5)
    found = sentences(folder)
    assert "the tokenizer has id 5, vocab_size is 5" in found
    assert "model.embed_tokens.weight has 8 rows, vocab_size is 5" in found
    write(folder / "config.json", architectures=["L"], text_config={"vocab_size": 8})
    assert check(folder) == []
    write(folder / "config.json", architectures=["L"])
    assert "config.json names vocab_size" in sentences(folder)


@pytest.mark.parametrize(
    ("generation", "template", "accepted"),
    [
        ({"eos_token_id": 1, "pad_token_id": 0}, TEMPLATE, True),
        ({"eos_token_id": 1, "pad_token_id": 1}, TEMPLATE, False),  # the padding masks the real EOS
        ({"eos_token_id": [0, 2], "pad_token_id": 0}, TEMPLATE, True),  # turns end with 2
        ({"eos_token_id": [0, 2], "pad_token_id": 2}, TEMPLATE, False),  # turns end with the padding
        ({"eos_token_id": [0, 1], "pad_token_id": 0}, "{{ m }}{{ eos_token }}", True),  # that is 1
        ({"eos_token_id": [0, 2], "pad_token_id": 0}, "{{ m }}{{ eos_token }}", False),
    ],
)
def test_padding_is_no_end_of_sequence_unless_another_ends_turns(
    make: Make, generation: dict[str, Any], template: str, accepted: bool
) -> None:
    found = sentences(make(generation=generation, template=template))
    assert (found == "") is accepted
    assert accepted or "not an EOS id, unless another EOS id ends turns" in found


def test_ids_must_exist(make: Make) -> None:
    assert "eos_token_id: present" in sentences(make("a", generation={"pad_token_id": 0}))
    outside = sentences(make("b", generation={"eos_token_id": 9, "pad_token_id": 0}))
    assert "below vocab_size: found [9]" in outside


def test_pad_is_found_where_it_is_written(make: Make) -> None:
    folder = make(generation={"eos_token_id": 1})
    assert facts(folder).pad_id == 0  # the tokenizer's pad token
    write(folder / "config.json", architectures=["L"], vocab_size=8, pad_token_id=4)
    assert facts(folder).pad_id == 4
    write(folder / "generation_config.json", eos_token_id=[1, 2], pad_token_id=3)
    assert (facts(folder).pad_id, facts(folder).eos_ids) == (3, (1, 2))


def test_chat_templates_are_found_in_all_three_places(make: Make) -> None:
    folder = make()
    expected = chat_template_digest(folder)
    (folder / "chat_template.jinja").unlink()
    assert "chat_template: present" in sentences(folder)
    assert chat_template_digest(folder) == ""
    write(folder / "tokenizer_config.json", chat_template=TEMPLATE)
    assert chat_template_digest(folder) == expected
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    write(folder / "tokenizer_config.json", chat_template=named)
    assert chat_template(folder) == TEMPLATE


def test_records_round_trip_and_grow(make: Make) -> None:
    base, sft = make("base"), make("sft")
    child = record_after(base, "sft", 50)
    assert child.base_digest == tensor_digest(base)
    write_record(sft, child)
    assert read_record(sft) == child
    grandchild = record_after(sft, "rl", 7, rl_steps=7)
    assert grandchild.base_digest == tensor_digest(base)
    assert [stage.stage for stage in grandchild.stages] == ["base", "sft", "rl"]
    assert grandchild.rl_steps == 7
    assert not list(sft.glob(".*"))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"stages": [], "rl_steps": 0, "base_digest": "", "lr": 1}, "keys"),
        ({"stages": [], "rl_steps": 0}, "keys"),
        ({"stages": [], "rl_steps": "0", "base_digest": ""}, "rl_steps of type int"),
        ({"stages": [], "rl_steps": True, "base_digest": ""}, "rl_steps of type int"),
        ({"stages": [], "rl_steps": -1, "base_digest": ""}, "rl_steps at least 0"),
        ({"stages": ["base"], "rl_steps": 0, "base_digest": ""}, "stages of JSON objects"),
        ({"stages": [{"stage": "base"}], "rl_steps": 0, "base_digest": ""}, "keys"),
    ],
)
def test_records_that_say_something_else_are_refused(
    make: Make, record: dict[str, Any], sentence: str
) -> None:
    folder = make()
    write(folder / "training_record.json", **record)
    assert sentence in sentences(folder)
    with pytest.raises(ContractBreach, match=sentence):
        read_record(folder)
