"""Domains by name, or a user's own as `package.module:Class`; a class is called with the domain's folder.

The stage `prompts` is told the name and writes it into the folder; every other stage reads it there.
"""

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_contracts.durable import write_atomic
from stages.domains.protocol import Domain
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.domains.sql.params import SqlParams  # pydantic would double the start of a verifier's worker

NAME_FILE = "domain.json"
BUILT_IN = {"sql": "stages.domains.sql.domain:SqlDomain"}


def open_domain(folder: Path) -> Domain:
    """The domain that a folder is of. Raises UsageError for one without a name, and as `build_domain`."""
    domain: Domain = domain_class(domain_name(folder))(folder)
    return domain


def domain_name(folder: Path) -> str:
    """The name under which the folder was built. Raises UsageError if it does not say."""
    try:
        name = json.loads((folder / NAME_FILE).read_text(encoding="utf-8"))["name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} is not the folder of a domain, it has no readable {NAME_FILE}: "
            "give the output `domain` of the stage `prompts`"
        ) from error
    return str(name)


def write_name(folder: Path, name: str, **versions: str | int) -> None:
    """With the versions in it, another one changes the folder's digest and the key of all that reads it."""
    write_atomic(folder / NAME_FILE, json.dumps({"name": name, **versions}) + "\n")


def build_domain(name: str, folder: Path, sql: "SqlParams") -> None:
    """Fill the domain's folder. A user's class that needs more than its name has a static `build(folder)`.

    Raises UsageError if the name is neither built in nor an importable `package.module:Class`.
    """
    found = domain_class(name)
    if name == "sql":
        found.build(folder, sql)
    elif hasattr(found, "build"):
        found.build(folder)
    write_name(folder, name, version=found.version, signature_version=found.signature_version)


def domain_class(name: str) -> Any:
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
