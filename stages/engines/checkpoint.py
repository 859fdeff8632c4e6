"""A checkpoint folder: model, tokenizer, chat template and the record of what trained it."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from data_contracts.checkpoint import TrainingRecord, write_record
from stages.engines.params import ModelShape


def new_llama(shape: ModelShape, tokenizer: Any, seed: int) -> LlamaForCausalLM:
    """A Llama with random weights for this tokenizer."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def export(model: Any, tokenizer: Any, record: TrainingRecord, folder: Path) -> None:
    """Write a complete Hugging Face folder, with `training_record.json` beside the weights."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_record(folder, record)
