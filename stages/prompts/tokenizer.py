"""Trains the BPE tokenizer of the small models on the domain's text and wraps it as a Hugging Face tokenizer.

Identifiers such as `t.genre_id` are one pre-token, digits stand alone, and every byte has a token, so that
sequences are short and any text survives a round trip.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, EOS, USER, ASSISTANT = "<|pad|>", "<|eos|>", "<|user|>", "<|assistant|>"
SPECIAL = (PAD, EOS, USER, ASSISTANT)
PRE_TOKENS = r" ?[a-z]+(?:[._][a-z]+)+| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+"

# Append-only: a longer conversation renders as a longer string with the shorter one as its prefix.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}"
    "<|assistant|>{% generation %}{{ message['content'] }}<|eos|>{% endgeneration %}"
    "{% else %}{{ raise_exception('only user and assistant turns are known to this template') }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> "PreTrainedTokenizerFast":
    """A byte-level BPE of `vocabulary` tokens, 4 special ones and 256 bytes among them; deterministic."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def save_tokenizer(tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    tokenizer.save_pretrained(folder)
