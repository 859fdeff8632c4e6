"""Bring a checkpoint into the store: its weights, tokenizer and template are digested like our own."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from data_contracts.checkpoint import StageRecord, TrainingRecord
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
    except (OSError, ValueError) as error:
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
    record = TrainingRecord(stages=(StageRecord("adopt", 0),), rl_steps=ctx.params.rl_steps)
    export(model, tokenizer, record, ctx.output("checkpoint"))
