"""A choice of a recipe, and a union of choices that are told apart by their kind."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Discriminator


class Choice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def kinds(default: str, *others: str) -> Discriminator:
    """Tells a union's choices apart by `kind`; it is the default's where a recipe only sets a number."""

    def kind(given: Any) -> str | None:
        if isinstance(given, BaseModel):
            return str(getattr(given, "kind", None))
        return given.get("kind", default) if isinstance(given, dict) else None

    known = ", ".join((default, *others))
    return Discriminator(kind, "unknown_kind", f"there is no such kind; it is one of {known}")
