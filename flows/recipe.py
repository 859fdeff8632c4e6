"""A recipe: everything that a flow can be told, in one validated object made of layers.

Later wins: class defaults, the flow's built-in recipe, a profile, `--recipe FILE`, `--set a.b=c`. Profiles
change sizes and the runtime only.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from flows import layers
from flows.explain import refusal
from stages.declaration import SeededParams
from stages.errors import UsageError
from stages.spec import Runtime

BUILT_IN = "recipe"


class Recipe(BaseModel):
    """Base of every flow's recipe. `seed` is the seed of each stage that draws and does not set its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(0, ge=0)
    runtime: Runtime = Runtime()

    @model_validator(mode="after")
    def _seed_reaches_every_stage(self) -> "Recipe":
        for name in type(self).model_fields:
            params = getattr(self, name)
            if isinstance(params, SeededParams) and "seed" not in params.model_fields_set:
                # the model is frozen for everybody but its own validation
                self.__dict__[name] = params.model_copy(update={"seed": self.seed})
        return self


R = TypeVar("R", bound=Recipe)


@dataclass(frozen=True)
class Setting:
    """A value that differs from the class default, and who set it."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True)
class Loaded(Generic[R]):
    recipe: R
    profile: str
    sources: Mapping[str, str]

    def settings(self) -> list[Setting]:
        """Every leaf that a layer set to something else than the class default, in the order of the class."""
        values, defaults = self.recipe.model_dump(mode="json"), type(self.recipe)().model_dump(mode="json")
        changed = [
            Setting(path, _at(values, path), source)
            for path, source in self.sources.items()
            if _at(values, path) != _at(defaults, path)
        ]
        order = list(type(self.recipe).model_fields)
        return sorted(changed, key=lambda setting: (order.index(setting.key.split(".")[0]), setting.key))


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def load(
    recipe_class: type[R],
    recipes: Traversable,
    *,
    profile: str | None = None,
    file: Path | None = None,
    settings: Sequence[str] = (),
) -> Loaded[R]:
    """Layer and validate a recipe; `recipes` is the folder of the built-in recipe and the profiles.

    Raises UsageError, in one sentence that names the key, where it was written and what is valid there.
    """
    profile = profile or ("gpu" if cuda_is_there() else "cpu")
    stack = [
        _built_in(recipes, BUILT_IN, "the built-in recipe"),
        _built_in(recipes, profile, f"profile {profile}"),
        *([layers.from_file(file)] if file else []),
        *map(layers.from_setting, settings),
    ]
    merged = layers.merge(stack)
    try:
        recipe = recipe_class.model_validate(merged.values)
    except ValidationError as error:
        raise refusal(error, recipe_class, merged) from error
    return Loaded(recipe, profile, merged.sources)


def profiles(recipes: Traversable) -> list[str]:
    """Names of the profiles in a flow's folder of recipes."""
    files = (file.name for file in recipes.iterdir() if file.name.endswith(".yaml"))
    return sorted(name for file in files if (name := file.removesuffix(".yaml")) != BUILT_IN)


def _built_in(recipes: Traversable, name: str, label: str) -> layers.Layer:
    file = recipes / f"{name}.yaml"
    if not file.is_file():
        known = ", ".join(profiles(recipes))
        raise UsageError(f"there is no profile {name!r} of {recipes.name}: choose one of {known}")
    return layers.from_text(file.read_text(encoding="utf-8"), label)


def cuda_is_there() -> bool:
    """Whether this machine shows a CUDA device to a process started now; torch is not asked, it is slow."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in {"", "-1"}:
        return False
    if Path("/dev/nvidia0").exists():
        return True
    if not (smi := shutil.which("nvidia-smi")):
        return False
    try:
        listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout
