"""Importance ratios: level, regulariser, veto."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds


class Level(StrEnum):
    """What one ratio is taken over."""

    TOKEN = "token"
    SEQUENCE = "sequence"  # the product over the sequence's trained tokens
    GEOMETRIC = "geometric"  # their geometric mean


class Unregularised(Choice):
    """f(r) = r."""

    kind: Literal["none"] = "none"


class Uncorrected(Choice):
    """f(r) = 1: off-policy samples are taken as if they were on-policy."""

    kind: Literal["uncorrected"] = "uncorrected"


class Truncate(Choice):
    """f(r) = min(r, high): TIS."""

    kind: Literal["truncate"] = "truncate"
    high: float = Field(2.0, ge=1)


class Clip(Choice):
    """f(r) = clip(r, low, high), detached: CISPO's weight."""

    kind: Literal["clip"] = "clip"
    low: float = Field(0.5, ge=0, le=1)
    high: float = Field(2.0, ge=1)


class Mask(Choice):
    """f(r) = r inside [low, high], 0 outside: IcePop."""

    kind: Literal["mask"] = "mask"
    low: float = Field(0.5, ge=0, le=1)
    high: float = Field(5.0, ge=1)


RegulariserChoice = Unregularised | Uncorrected | Truncate | Clip | Mask
Regulariser = Annotated[
    Annotated[Unregularised, Tag("none")]
    | Annotated[Uncorrected, Tag("uncorrected")]
    | Annotated[Truncate, Tag("truncate")]
    | Annotated[Clip, Tag("clip")]
    | Annotated[Mask, Tag("mask")],
    kinds("none", "uncorrected", "truncate", "clip", "mask"),
]


class Ratio(Choice):
    """A detached importance weight f(ratio), and the sequences that are thrown out whole."""

    level: Level = Level.TOKEN
    regulariser: Regulariser = Unregularised()
    veto_below: float | None = Field(
        None, gt=0, lt=1, description="a sequence with any token ratio below this has weight 0"
    )
