"""Domains by name, or a user's own as `package.module:Class`; a class is called with the domain's folder."""

import importlib
from pathlib import Path

from stages.domains.protocol import Domain, DomainFactory
from stages.errors import UsageError

BUILT_IN = {"sql": "stages.domains.sql.domain:SqlDomain"}


def open_domain(name: str, folder: Path) -> Domain:
    """Raises UsageError if the name is neither built in nor an importable `package.module:Class`."""
    path = BUILT_IN.get(name, name)
    module_name, separator, class_name = path.partition(":")
    if not separator:
        raise UsageError(
            f"there is no domain {name!r}: use one of {', '.join(BUILT_IN)} or package.module:Class"
        )
    try:
        factory: DomainFactory = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"domain {name!r} cannot be imported ({error}); is its package installed?") from error
    return factory(folder)
