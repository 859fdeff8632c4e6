"""The contract of a checkpoint: a Hugging Face folder, read without torch.

A checkpoint is `config.json`, safetensors (one file, or shards with an index), `tokenizer.json`,
`tokenizer_config.json`, a chat template, `generation_config.json`, and our `training_record.json`.
"""

from data_contracts.checkpoint.checks import check
from data_contracts.checkpoint.facts import AGREED, CheckpointFacts, facts
from data_contracts.checkpoint.record import (
    StageRecord,
    TrainingRecord,
    read_record,
    record_after,
    write_record,
)
from data_contracts.checkpoint.tensors import tensor_digest
from data_contracts.checkpoint.tokenizer import chat_template, chat_template_digest, tokenizer_digest

__all__ = [
    "AGREED",
    "CheckpointFacts",
    "StageRecord",
    "TrainingRecord",
    "chat_template",
    "chat_template_digest",
    "check",
    "facts",
    "read_record",
    "record_after",
    "tensor_digest",
    "tokenizer_digest",
    "write_record",
]
