"""What a contract is: an Arrow schema with nullability, required metadata, vectorised rules, a suite.

Types and metadata are checked on every open (microseconds), rules on every commit (milliseconds), the
great-expectations suite at stage boundaries by `tasks`, which has the library.
"""

import importlib.resources
import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from data_contracts.breach import Breach
from data_contracts.expectations import TableUnderCheck, nested


class Key(StrEnum):
    """Schema metadata that contracts know; a dataset may carry more, which are notes and not content."""

    CONTRACT = "posttrain.contract"
    TOKENIZER = "posttrain.tokenizer"  # tokenizer digest, wherever there are token columns
    VOCABULARY = "posttrain.vocabulary"  # number of token ids, bounds the token columns when given


@dataclass(frozen=True)
class Contract:
    """`row_id` are the columns that name a row in a breach; `token_columns` hold ids of one tokenizer."""

    name: str
    package: str
    schema: pa.Schema
    row_id: tuple[str, ...]
    token_columns: tuple[str, ...]
    rules: Callable[[TableUnderCheck], None]

    @property
    def required_metadata(self) -> tuple[Key, ...]:
        return (Key.CONTRACT, Key.TOKENIZER) if self.token_columns else (Key.CONTRACT,)

    @property
    def scalar_columns(self) -> tuple[str, ...]:
        """Columns that are not nested: what the suite sees."""
        return tuple(field.name for field in self.schema if not nested(field.type))

    def suite(self) -> dict[str, Any]:
        """The great-expectations suite of the scalar columns, as JSON."""
        found: dict[str, Any] = json.loads(
            importlib.resources.files(self.package).joinpath("suite.json").read_text()
        )
        return found

    def check(self, table: pa.Table) -> list[Breach]:
        """Every rule on a table of this schema: not empty, no nulls, all finite, then the contract's own.

        The contract's own rules are judged only on a table without nulls in the wrong places.
        """
        under_check = TableUnderCheck(table, self.row_id)
        if not under_check.not_empty():
            return under_check.breaches
        for field in self.schema:
            under_check.no_nulls(field)
        if under_check.breaches:
            return under_check.breaches
        under_check.finite()
        vocabulary = (table.schema.metadata or {}).get(Key.VOCABULARY.value.encode())
        if vocabulary is not None:
            for column in self.token_columns:
                under_check.tokens_below(column, int(vocabulary))
        self.rules(under_check)
        return under_check.breaches
