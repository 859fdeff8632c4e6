"""Questions, databases and the tokenizer: everything that later stages know of the domain."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from stages.declaration import FILES, Declaration, ForeignCode, SeededParams, dataset
from stages.domains.protocol import Split
from stages.domains.registry import BUILT_IN, domain_class
from stages.domains.sql.params import SqlParams


class PromptsParams(SeededParams):
    expected_seconds: ClassVar[float | None] = 12

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


def code_of_domain(params: PromptsParams) -> ForeignCode:
    """The domain's versions, and its module if it is a user's. Raises UsageError if there is none."""
    found = domain_class(params.domain)
    versions = {"domain": f"{found.name}/{found.version}", "signature": str(found.signature_version)}
    return ForeignCode(versions, () if params.domain in BUILT_IN else (found.__module__,))


STAGE = Declaration(
    name="prompts",
    version=1,
    params=PromptsParams,
    foreign_code=code_of_domain,
    inputs={},
    outputs={"prompts": dataset("prompts/1"), "domain": FILES, "tokenizer": FILES},
)
