"""The flows there are: `flows/<name>.py` defines the flow `<name>`, which takes one argument, its recipe."""

import importlib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import TYPE_CHECKING, Any

from flows.recipe import Recipe
from stages.errors import UsageError

if TYPE_CHECKING:
    from prefect import Flow


@dataclass(frozen=True)
class FlowEntry:
    name: str
    recipe_class: type[Recipe]
    flow: "Flow[Any, Any]"


def names() -> list[str]:
    """Every flow has a folder of recipes; so they are listed without importing one."""
    recipes = resources.files("flows.recipes")
    return sorted(folder.name for folder in recipes.iterdir() if (folder / "recipe.yaml").is_file())


def find(name: str) -> FlowEntry:
    """The flow of this name; importing it takes Prefect's import time. Raises UsageError if there is none."""
    if name not in names():
        close = get_close_matches(name, names(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names())}"
        raise UsageError(f"there is no flow {name!r}: {hint}")
    found = getattr(importlib.import_module(f"flows.{name}"), name)
    return FlowEntry(name, found.fn.__annotations__["recipe"], found)
