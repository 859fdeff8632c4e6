"""Bring a checkpoint into the store: its weights, tokenizer and template are digested like our own."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from data_contracts.checkpoint import StageRecord, TrainingRecord, read_record
from data_contracts.checkpoint.record import FILE
from stages.adopt.params import AdoptParams
from stages.context import StageContext
from stages.engines.chat import open_tokenizer
from stages.engines.checkpoint import export
from stages.errors import UsageError


def run(ctx: StageContext[AdoptParams]) -> None:
    source = ctx.params.source
    try:
        tokenizer = open_tokenizer(Path(source) if Path(source).is_dir() else source)  # type: ignore[arg-type]
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(
            f"{source!r} is neither a Hugging Face folder nor a model that can be fetched "
            f"(HF_HUB_OFFLINE is honoured): {str(error).splitlines()[0]}"
        ) from error
    if tokenizer.chat_template is None:
        raise UsageError(
            f"{source!r} has no chat template: give an instruct model, or add chat_template.jinja"
        )
    if tokenizer.pad_token_id is None:
        raise UsageError(f"{source!r} has no PAD token: set one in its tokenizer_config.json, other than EOS")
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    rl_steps = max(ctx.params.rl_steps, recorded_rl_steps(Path(source)))
    record = TrainingRecord(stages=(StageRecord("adopt", 0),), rl_steps=rl_steps)
    export(model, tokenizer, record, ctx.output("checkpoint"))


def recorded_rl_steps(source: Path) -> int:
    """What a checkpoint of ours says of itself: adoption must not wash RL off it (the archive refuses it)."""
    return read_record(source).rl_steps if (source / FILE).is_file() else 0
