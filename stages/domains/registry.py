"""Domains by name, or a user's own as `package.module:Class`; a class is called with the domain's folder."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.domains.protocol import Domain
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.domains.sql.params import SqlParams  # pydantic would double the start of a verifier's worker

BUILT_IN = {"sql": "stages.domains.sql.domain:SqlDomain"}


def open_domain(name: str, folder: Path) -> Domain:
    """Raises UsageError if the name is neither built in nor an importable `package.module:Class`."""
    domain: Domain = _class(name)(folder)
    return domain


def build_domain(name: str, folder: Path, sql: "SqlParams") -> None:
    """Fill the domain's folder. A user's class that needs one has a static method `build(folder)`."""
    found = _class(name)
    if name == "sql":
        found.build(folder, sql)
    elif hasattr(found, "build"):
        found.build(folder)


def _class(name: str) -> Any:
    path = BUILT_IN.get(name, name)
    module_name, separator, class_name = path.partition(":")
    if not separator:
        known = ", ".join(BUILT_IN)
        raise UsageError(f"there is no domain {name!r}: use one of {known} or package.module:Class")
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"domain {name!r} cannot be imported ({error}); is its package installed?"
        ) from error
