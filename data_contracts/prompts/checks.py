"""Rules of prompts/1."""

import json

import numpy as np

from data_contracts.expectations import TableUnderCheck
from data_contracts.values import Split


def check(table: TableUnderCheck) -> None:
    table.unique("id")
    for column in ("id", "domain", "capability", "text"):
        table.not_blank(column)
    table.in_set("split", [split.value for split in Split])
    table.in_set("readings", [1, 2])
    ambiguous = ~table.equals("ambiguity", "")
    table.expect("readings", "2 iff ambiguity is named", ambiguous != table.equals("readings", 2))
    table.expect("messages", "at least one message", table.lengths("messages") == 0)
    payloads = table.table.column("payload").to_pylist()
    table.expect("payload", "a JSON object", np.array([not _is_object(text) for text in payloads], bool))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        return False
