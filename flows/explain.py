"""Validation errors of a recipe as one sentence: which key, where it was written, what is valid there."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from flows.layers import Merged
from stages.errors import UsageError

SHOWN = 3


def refusal(error: ValidationError, model: type[BaseModel], merged: Merged) -> UsageError:
    """The UsageError that tells a user what `error` found in `merged`; at most three findings are told."""
    findings = error.errors(include_url=False)
    told = [_sentence(dict(finding), model, merged) for finding in findings[:SHOWN]]
    more = f" (and {len(findings) - SHOWN} more)" if len(findings) > SHOWN else ""
    return UsageError("; ".join(dict.fromkeys(told)) + more)


def _sentence(finding: dict[str, Any], model: type[BaseModel], merged: Merged) -> str:
    path = _written_path(finding["loc"], merged.values)
    source = merged.source(path)
    where = f" in {source}" if source else ""
    if finding["type"] == "extra_forbidden":
        return f'unknown key "{path}"{where}: {suggestion(path, model)}'
    reason = finding["msg"].removeprefix("Value error, ")
    return f"{path or 'recipe'}{where}: {reason[:1].lower()}{reason[1:]}"


def _written_path(loc: tuple[str | int, ...], values: Any) -> str:
    """The dotted path without what pydantic adds, such as the name of a union's branch."""
    parts: list[str] = []
    for index, part in enumerate(loc):
        in_list = isinstance(values, list) and isinstance(part, int) and part < len(values)
        if in_list or (isinstance(values, dict) and part in values):
            values = values[part]
        elif index < len(loc) - 1 or not isinstance(values, dict):
            continue
        parts.append(str(part))
    return ".".join(parts)


def suggestion(path: str, model: type[BaseModel]) -> str:
    """`did you mean "rl.steps"?`, or the keys that are valid beside it when none is close."""
    valid = list(paths(model))
    parent, _, name = path.rpartition(".")
    beside = {key.rpartition(".")[2]: key for key in valid if key.rpartition(".")[0] == parent}
    if close := get_close_matches(name, beside, 1):
        return f'did you mean "{beside[close[0]]}"?'
    elsewhere = [key for key in valid if key.rpartition(".")[2] == name]
    if close := elsewhere[:1] or ([] if beside else get_close_matches(path, valid, 1)):
        return f'did you mean "{close[0]}"?'
    if not beside:
        return f'"{parent}" has no keys below it'
    return f"valid here: {', '.join(sorted(beside))}"


def paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key that a recipe of this class may set."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        yield path
        for inner in _models(field.annotation):
            yield from paths(inner, path + ".")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_args(annotation) and not _is_container(annotation):
        for argument in get_args(annotation):
            yield from _models(argument)


def _is_container(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) in {list, tuple, dict, set, frozenset}
