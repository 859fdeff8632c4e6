"""The flows there are: `flows/<name>.py` defines the flow `<name>`, which takes one argument, its recipe.

A user's own flow is named by its module, `package.module`; its recipes are in `package/recipes/<module>/`.
"""

import importlib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from flows.recipe import Recipe
from stages.errors import UsageError

if TYPE_CHECKING:
    from prefect import Flow

OURS = "flows"
RECIPES = "recipes"


@dataclass(frozen=True)
class FlowEntry:
    """`name` is what a user calls it, `recipes` the folder of its built-in recipe and profiles."""

    name: str
    recipe_class: type[Recipe]
    flow: "Flow[Any, Any]"
    recipes: Traversable


def names() -> list[str]:
    """Our own flows. Each has a folder of recipes; so they are listed without importing one."""
    folders = (resources.files(OURS) / RECIPES).iterdir()
    return sorted(folder.name for folder in folders if (folder / "recipe.yaml").is_file())


def find(name: str) -> FlowEntry:
    """The flow of this name; importing it takes Prefect's import time. Raises UsageError if there is none."""
    if "." not in name and name not in names():
        close = get_close_matches(name, names(), 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names())}"
        raise UsageError(f"there is no flow {name!r}: {hint}")
    module_name = name if "." in name else f"{OURS}.{name}"
    package, _, function = module_name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), function)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not module_name.startswith(error.name or "\0"):
            raise  # the flow is there, something that it imports is not
        raise UsageError(
            f"there is no flow {name!r}: expected a module {module_name} with a function {function}"
        ) from error
    recipes = resources.files(package) / RECIPES / function
    return FlowEntry(name, found.fn.__annotations__["recipe"], found, recipes)
