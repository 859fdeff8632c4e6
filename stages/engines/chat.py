"""Messages to token ids through the checkpoint's own chat template, and answers to ids that end with EOS."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer


def open_tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def prompt_ids(tokenizer: Any, messages: Sequence[Mapping[str, object]]) -> list[int]:
    """Token ids up to the place where the assistant begins to speak."""
    ids: list[int] = tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return ids


def answer_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of an answer as the assistant would sample it: the text, then EOS."""
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]


def answer_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """What a verifier reads: the completion without its special tokens."""
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.strip()
