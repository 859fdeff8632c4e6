"""Questions, databases and the tokenizer: everything that later stages know of the domain."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from stages.declaration import FILES, Declaration, SeededParams, dataset
from stages.domains.protocol import Split
from stages.domains.sql.params import SqlParams


class PromptsParams(SeededParams):
    expected_seconds: ClassVar[float] = 12

    domain: str = "sql"
    """A built-in domain or a user's `package.module:Class`."""
    sql: SqlParams = SqlParams()
    """Settings of the built-in sql domain; without effect on another one."""
    vocabulary: int = Field(default=860, ge=300)
    """Tokens of the BPE: 4 special ones, 256 bytes, the rest merges."""
    tokenizer_rows: int = Field(default=3_000, ge=1)
    """Questions with their answers to learn merges from; slots are random, so that names come in pieces."""
    limits: Mapping[Split, int] = {}
    """At most so many prompts of a split, spread over its families; a split not named is kept whole."""


STAGE = Declaration(
    name="prompts",
    version=1,
    params=PromptsParams,
    inputs={},
    outputs={"prompts": dataset("prompts/1"), "domain": FILES, "tokenizer": FILES},
)
