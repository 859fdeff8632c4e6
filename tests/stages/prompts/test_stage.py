"""The prompts stage run for real, once, and what it leaves behind."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from data_contracts.dataset import read
from data_contracts.registry import contract
from stages.context import StageContext
from stages.domains.demonstrated import DemonstratedDomain
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.domains.registry import open_domain
from stages.prompts.params import PromptsParams
from stages.prompts.stage import run
from stages.spec import Runtime, StageSpec


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("prompts-stage")
    (root / "work").mkdir()
    params = PromptsParams(limits={Split.TRAIN: 90})
    spec = StageSpec(
        stage="prompts",
        node="prompts",
        attempt=1,
        params=params.model_dump(mode="json"),
        runtime=Runtime(),
        inputs={},
        work=root / "work",
        out=root / "out",
    )
    run(StageContext(spec, params))
    return root


def test_the_dataset_keeps_its_contract_and_the_limits(made: Path) -> None:
    table = read(made / "out/prompts", "prompts/1")
    assert contract("prompts/1").check(table) == []
    splits = Counter(table["split"].to_pylist())
    assert splits[Split.TRAIN] == 90
    assert splits[Split.TEST_VALUES] >= 100
    train = [row for row in table.to_pylist() if row["split"] == Split.TRAIN]
    assert max(Counter(row["capability"] for row in train).values()) <= 4  # spread over the families


def test_the_prompts_of_the_dataset_are_those_of_the_domain(made: Path) -> None:
    domain = open_domain(made / "out/domain")
    for split in (Split.VALIDATION, Split.TEST_COMPOSITIONS):
        rows = read_prompts(made / "out/prompts", split)
        assert [row.prompt for row in rows] == domain.prompts(split)
        assert all(row.messages == domain.messages(row.prompt) for row in rows)
        assert all(row.readings == len(domain.readings(row.prompt)) for row in rows)


def test_the_tokenizer_is_saved_as_it_was_and_loses_no_text(made: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made / "out/tokenizer")
    domain = open_domain(made / "out/domain")
    assert isinstance(domain, DemonstratedDomain)
    assert len(tokenizer) == PromptsParams().vocabulary
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    texts = []
    for split in Split:
        for prompt in domain.prompts(split):
            texts += [prompt.text, *(q for qs in domain.strategies(prompt).values() for q in qs)]
    texts += ["  two  spaces\n\ttab ", "日本語 ü 🎵", "a.b c_d 12 '''", "select\n"]
    ids = tokenizer(texts)["input_ids"]
    assert tokenizer.batch_decode(ids) == texts


def test_sequences_are_short(made: Path) -> None:
    metrics = json.loads((made / "work/metrics.jsonl").read_text())
    assert metrics["question_tokens_max"] <= 24
    assert metrics["answer_tokens_mean"] <= 33
    assert metrics["answer_tokens_max"] <= 60
    assert metrics["families"] >= 20
    assert metrics["ambiguous_share"] >= 0.25


def test_the_template_appends(made: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made / "out/tokenizer")
    turns = [
        {"role": "user", "content": "list tracks"},
        {"role": "assistant", "content": "select 1"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "select 2"},
    ]
    rendered = [tokenizer.apply_chat_template(turns[: n + 1], tokenize=False) for n in range(4)]
    for shorter, longer in pairwise(rendered):
        assert longer.startswith(shorter)
    asked = tokenizer.apply_chat_template(turns[:1], tokenize=False, add_generation_prompt=True)
    assert asked == "<|user|>list tracks<|assistant|>"
    assert rendered[1] == asked + "select 1<|eos|>"
    ids = tokenizer(rendered[1], add_special_tokens=False)["input_ids"]
    prompt_ids = tokenizer(asked, add_special_tokens=False)["input_ids"]
    assert ids[: len(prompt_ids)] == prompt_ids
    assert ids[-1] == tokenizer.eos_token_id


def test_the_template_marks_what_the_assistant_says(made: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made / "out/tokenizer")
    turns = [{"role": "user", "content": "list"}, {"role": "assistant", "content": "select 1"}]
    encoded = tokenizer.apply_chat_template(
        turns, return_dict=True, return_assistant_tokens_mask=True, tokenize=True
    )
    said = [i for i, mask in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if mask]
    assert tokenizer.decode(said) == "select 1<|eos|>"


def test_a_role_that_the_template_does_not_know_is_an_error(made: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made / "out/tokenizer")
    with pytest.raises(Exception, match="only user and assistant"):
        tokenizer.apply_chat_template([{"role": "system", "content": "be brief"}], tokenize=False)
