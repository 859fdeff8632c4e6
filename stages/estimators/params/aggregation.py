"""Aggregation of a batch's tokens; every denominator counts the whole batch."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from stages.estimators.params.choice import Choice, kinds


class TokenMean(Choice):
    """Mean over the trained tokens of the batch."""

    kind: Literal["token_mean"] = "token_mean"


class SequenceMean(Choice):
    """Mean over the batch's sequences of the mean over each one's tokens."""

    kind: Literal["sequence_mean"] = "sequence_mean"


class FixedLength(Choice):
    """Sum over tokens, divided by sequences x a constant length: no length is favoured (Dr. GRPO)."""

    kind: Literal["fixed_length"] = "fixed_length"
    length: int = Field(ge=1)


AggregationChoice = TokenMean | SequenceMean | FixedLength
Aggregation = Annotated[
    Annotated[TokenMean, Tag("token_mean")]
    | Annotated[SequenceMean, Tag("sequence_mean")]
    | Annotated[FixedLength, Tag("fixed_length")],
    kinds("token_mean", "sequence_mean", "fixed_length"),
]
