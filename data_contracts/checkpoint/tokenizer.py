"""What makes two tokenizers the same: the content of `tokenizer.json`, and the text of the chat template.

Truncation and padding are left out of the digest: they are the last caller's settings, and no change of ids.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from data_contracts.checkpoint.files import breach, read_json, read_json_if_present

CALL_SETTINGS = ("truncation", "padding")


def tokenizer_digest(folder: Path) -> str:
    """`sha256:...` of the tokenizer in a folder. Raises ContractBreach if there is no `tokenizer.json`."""
    tokenizer = {
        key: value for key, value in read_json(folder / "tokenizer.json").items() if key not in CALL_SETTINGS
    }
    model = dict(tokenizer.get("model", {}))
    if merges := model.get("merges"):  # written as "a b" by old versions and as ["a", "b"] by new ones
        model["merges"] = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges]
        tokenizer["model"] = model
    canonical = json.dumps(tokenizer, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def token_ids(folder: Path) -> dict[str, int]:
    """Every token of `tokenizer.json`, added ones included, with its id."""
    tokenizer = read_json(folder / "tokenizer.json")
    vocabulary: Any = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(vocabulary, list):  # Unigram: [[token, score], ...]
        vocabulary = {token: number for number, (token, _) in enumerate(vocabulary)}
    added = {entry["content"]: entry["id"] for entry in tokenizer.get("added_tokens", [])}
    return {**vocabulary, **added}


def chat_template(folder: Path) -> str:
    """The default chat template's text, "" if there is none."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text()
    template = read_json_if_present(folder / "tokenizer_config.json").get("chat_template", "")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default", "")
    if not isinstance(template, str):
        raise breach("a chat template of text", f"{folder}: found {type(template).__name__}", "chat_template")
    return template


def chat_template_digest(folder: Path) -> str:
    """`sha256:...` of the chat template, "" if there is none. Like Jinja, drops a last newline."""
    template = chat_template(folder)
    if not template:
        return ""
    return f"sha256:{hashlib.sha256(template.removesuffix(chr(10)).encode()).hexdigest()}"
