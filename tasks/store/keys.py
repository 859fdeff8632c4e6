"""Keys: what a stage's result depends on, as one hash.

`key = sha256(canonical {schema, stage, version, code, params, input digests})`; `code` are the versions of
what the stage runs from outside of it. Digests of the inputs, not their keys, so that a rerun which yields
equal bytes does not invalidate what follows. The runtime stays outside.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

from stages.declaration import Declaration, StageParams
from stages.errors import UsageError

SCHEMA = 2


class UnstableValue(UsageError):
    """A value that has no canonical form, so that it must not enter a key."""


def plain(value: Any, where: str = "value") -> Any:
    """`value` as JSON types only. Raises UnstableValue for what would not hash the same everywhere."""
    match value:
        case None | bool():
            return value
        case Enum():
            return plain(value.value, where)
        case int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise UnstableValue(f"{where} is {value}; a key takes finite numbers only")
            return value
        case BaseModel():
            fields = value.model_dump(serialize_as_any=True)  # a subclass keeps its own fields
            return plain(fields, where)
        case Mapping():
            for name in value:
                if not isinstance(name, str):
                    raise UnstableValue(f"{where} has the key {name!r}; a key takes string keys only")
            return {name: plain(item, f"{where}.{name}") for name, item in value.items()}
        case list() | tuple():
            return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise UnstableValue(f"{where} is a {type(value).__name__}; a key takes JSON types, enums and models only")


def canonical(value: Any) -> bytes:
    """The one JSON text of `value`: sorted keys, no spaces, UTF-8. Raises UnstableValue."""
    text = json.dumps(
        plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def params_of(params: StageParams) -> dict[str, Any]:
    """The parameters as they enter the key, the manifest and the stage's process."""
    found = plain(params, "params")
    assert isinstance(found, dict)
    return found


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings with dotted names; lists stay leaves."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves(below, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, value


def stage_key(declaration: Declaration, params: StageParams, input_digests: Mapping[str, str]) -> str:
    """64 hex digits that name the result of this stage on these parameters and inputs."""
    code = declaration.foreign_code(params).versions
    return key_of(declaration.name, declaration.version, code, params_of(params), input_digests)


def key_of(
    stage: str,
    version: int,
    code: Mapping[str, str],
    params: Mapping[str, Any],
    input_digests: Mapping[str, str],
) -> str:
    """The key from what a manifest records, whatever today's code would make of those parameters."""
    identity = {
        "schema": SCHEMA,
        "stage": stage,
        "version": version,
        "code": code,
        "params": params,
        "inputs": input_digests,
    }
    return hashlib.sha256(canonical(identity)).hexdigest()
