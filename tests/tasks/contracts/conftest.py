"""Stages' inputs and outputs as they lie on disk: checkpoints, tokenizers, rollouts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from data_contracts.checkpoint import StageRecord, TrainingRecord, tokenizer_digest, write_record
from data_contracts.dataset import DatasetWriter
from stages.declaration import CHECKPOINT, FILES, Declaration, StageParams, dataset

Rows = list[dict[str, Any]]

RL = Declaration(
    name="rl",
    version=1,
    params=StageParams,
    inputs={"policy": CHECKPOINT, "archive": dataset("elite_archive/1"), "domain": FILES},
    outputs={"checkpoint": CHECKPOINT, "rollouts": dataset("rollouts/1")},
)
BASE = Declaration(
    name="base",
    version=1,
    params=StageParams,
    inputs={"tokenizer": FILES},
    outputs={"checkpoint": CHECKPOINT},
)


def rollouts(groups: int = 3, size: int = 4) -> Rows:
    return [
        {
            "prompt_id": f"p{group}",
            "group_id": f"0/p{group}",
            "sample": sample,
            "capability": "count",
            "prompt_ids": [1, 2],
            "completion_ids": [3, 1],
            "logprobs": [-0.5, -1.25],
            "head_size": 1,
            "head_ids": [4, 5],
            "head_logprobs": [-0.5, -0.25],
            "weight_version": [7, 7],
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "stop_reason": "eos",
            "reward": float(sample % 2),
            "unscorable": None,
            "reading": "a",
            "signature": f"s{sample}",
            "text": f"text {group} {sample}",
            "step": 0,
        }
        for group in range(groups)
        for sample in range(size)
    ]


class Disk:
    """Writes artefacts below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def tokenizer(self, name: str, **tokens: int) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True)
        vocabulary = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3, **tokens}
        text = json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": []}})
        (folder / "tokenizer.json").write_text(text)
        (folder / "chat_template.jinja").write_text("{{ m }}<eos>")
        return folder

    def checkpoint(self, name: str, **change: Any) -> Path:
        folder = self.tokenizer(name, **change.get("tokens", {}))
        size = change.get("vocab_size", 6)
        weights = {"model.embed_tokens.weight": np.full((size, 2), change.get("weight", 1.0), np.float32)}
        save_file(weights, folder / "model.safetensors")
        config = {"architectures": [change.get("architecture", "LlamaForCausalLM")], "vocab_size": size}
        (folder / "config.json").write_text(json.dumps(config))
        ids = {"eos_token_id": change.get("eos", 1), "pad_token_id": change.get("pad", 0)}
        (folder / "generation_config.json").write_text(json.dumps(ids))
        if template := change.get("template"):
            (folder / "chat_template.jinja").write_text(template)
        write_record(folder, TrainingRecord((StageRecord("base", 1),)))
        return folder

    def rollouts(self, name: str, rows: Rows, tokenizer: Path, **metadata: str) -> Path:
        known = {"posttrain.tokenizer": tokenizer_digest(tokenizer)}
        extra = {f"posttrain.{key}": value for key, value in metadata.items()}
        with DatasetWriter(self.root / name, "rollouts/1", {**known, **extra}) as writer:
            writer.write(rows)
        return self.root / name


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def rl() -> Declaration:
    return RL


@pytest.fixture
def base() -> Declaration:
    return BASE


@pytest.fixture
def rows() -> Callable[..., Rows]:
    return rollouts
