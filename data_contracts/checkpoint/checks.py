"""Rules of a checkpoint.

Padding and end of sequence: with pad == eos, masking the padding masks the real EOS and the model never
learns to stop. The padding id may be an EOS id only if another EOS id ends turns, that is if that token's
text, or the variable `eos_token` where it is the tokenizer's EOS, is in the chat template.
"""

from pathlib import Path

from data_contracts.breach import Breach, ContractBreach
from data_contracts.checkpoint.facts import CheckpointFacts, facts, special_token
from data_contracts.checkpoint.record import read_record
from data_contracts.checkpoint.tensors import tensors, tensors_not_finite
from data_contracts.checkpoint.tokenizer import chat_template, token_ids


def check(folder: Path) -> list[Breach]:
    """Every rule on a checkpoint folder; empty if it may be handed over."""
    try:
        found = facts(folder)
        read_record(folder)
    except ContractBreach as error:
        return error.breaches
    breaches = _vocabulary(folder, found) + _ends(folder, found)
    if not found.chat_template_digest:
        breaches.append(Breach("chat_template", "present", detail=f"{folder} has no chat template"))
    if names := tensors_not_finite(folder):
        detail = f"NaN or infinity in {', '.join(names[:3])}"
        breaches.append(Breach("model.safetensors", "finite weights", detail=detail, count=len(names)))
    return breaches


def _vocabulary(folder: Path, found: CheckpointFacts) -> list[Breach]:
    breaches = []
    highest = max(token_ids(folder).values(), default=-1)
    if highest >= found.vocabulary_size:
        detail = f"the tokenizer has id {highest}, vocab_size is {found.vocabulary_size}"
        breaches.append(Breach("tokenizer.json", "ids below vocab_size", detail=detail))
    for tensor in tensors(folder):
        if tensor.name.endswith("embed_tokens.weight") and tensor.shape[0] != found.vocabulary_size:
            detail = f"{tensor.name} has {tensor.shape[0]} rows, vocab_size is {found.vocabulary_size}"
            breaches.append(Breach("config.json", "vocab_size rows of embeddings", detail=detail))
    return breaches


def _ends(folder: Path, found: CheckpointFacts) -> list[Breach]:
    """The rule of the module's docstring, and that the ids exist."""
    if not found.eos_ids:
        return [
            Breach("eos_token_id", "present", detail="neither generation_config.json nor config.json has it")
        ]
    ids = [*found.eos_ids, *([found.pad_id] if found.pad_id is not None else [])]
    if outside := [number for number in ids if not 0 <= number < found.vocabulary_size]:
        return [Breach("eos_token_id, pad_token_id", "below vocab_size", detail=f"found {outside}")]
    if found.pad_id not in found.eos_ids or _another_ends_turns(folder, found):
        return []
    detail = f"both are {found.pad_id}; give the tokenizer a padding token of its own"
    return [Breach("pad_token_id", "not an EOS id, unless another EOS id ends turns", detail=detail)]


def _another_ends_turns(folder: Path, found: CheckpointFacts) -> bool:
    template = chat_template(folder)
    texts = {number: text for text, number in token_ids(folder).items()}
    eos = special_token(folder, "eos_token")
    others = [texts.get(number, "") for number in found.eos_ids if number != found.pad_id]
    return any(text and (text in template or (text == eos and "eos_token" in template)) for text in others)
