"""What must agree between checkpoints that exchange tokens, read from JSON and safetensors headers."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_contracts.checkpoint.files import breach, read_json, read_json_if_present
from data_contracts.checkpoint.tensors import tensors
from data_contracts.checkpoint.tokenizer import chat_template_digest, token_ids, tokenizer_digest

DTYPE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

AGREED = ("tokenizer_digest", "chat_template_digest", "eos_ids", "pad_id", "vocabulary_size")
"""What two checkpoints that exchange token ids must have in common."""


@dataclass(frozen=True)
class CheckpointFacts:
    """`dtype` joins the dtypes of all tensors with "+"; `vocabulary_size` is the model's number of ids."""

    tokenizer_digest: str
    chat_template_digest: str
    eos_ids: tuple[int, ...]
    pad_id: int | None
    vocabulary_size: int
    dtype: str
    architecture: str
    parameters: int

    def differing(self, other: "CheckpointFacts") -> list[str]:
        """The facts among AGREED that are not equal; empty if the two can exchange tokens."""
        return [name for name in AGREED if getattr(self, name) != getattr(other, name)]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "eos_ids": list(self.eos_ids)}


def facts(folder: Path) -> CheckpointFacts:
    """Facts of a checkpoint folder. Raises ContractBreach for what is missing or torn."""
    config = read_json(folder / "config.json")
    found = tensors(folder)
    architectures = config.get("architectures") or [config.get("model_type", "")]
    vocabulary = _of_model(config, "vocab_size")
    if not isinstance(vocabulary, int):
        raise breach("config.json names vocab_size", str(folder), "config.json")
    return CheckpointFacts(
        tokenizer_digest=tokenizer_digest(folder),
        chat_template_digest=chat_template_digest(folder),
        eos_ids=_eos_ids(folder, config),
        pad_id=_pad_id(folder, config),
        vocabulary_size=vocabulary,
        dtype="+".join(sorted({DTYPE_NAMES.get(tensor.dtype, tensor.dtype.lower()) for tensor in found})),
        architecture=str(architectures[0]),
        parameters=sum(tensor.elements for tensor in found),
    )


def _of_model(config: dict[str, Any], key: str) -> Any:
    """A key of the language model, which multi-modal models keep in `text_config`."""
    value = config.get(key)
    return value if value is not None else config.get("text_config", {}).get(key)


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """Generation stops at these: `generation_config.json`, else `config.json`. An id or a list of them."""
    value = read_json_if_present(folder / "generation_config.json").get("eos_token_id")
    value = value if value is not None else _of_model(config, "eos_token_id")
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(sorted(set(value)))


def _pad_id(folder: Path, config: dict[str, Any]) -> int | None:
    """`generation_config.json`, else `config.json`, else the tokenizer's pad token."""
    for value in (
        read_json_if_present(folder / "generation_config.json").get("pad_token_id"),
        _of_model(config, "pad_token_id"),
    ):
        if isinstance(value, int) and value >= 0:
            return value
    token = special_token(folder, "pad_token")
    return token_ids(folder).get(token) if token else None


def special_token(folder: Path, name: str) -> str:
    """The text of `eos_token`, `pad_token`... in `tokenizer_config.json`, "" if it names none."""
    token = read_json_if_present(folder / "tokenizer_config.json").get(name) or ""
    return str(token["content"]) if isinstance(token, dict) else str(token)
