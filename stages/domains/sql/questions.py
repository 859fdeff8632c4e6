"""From families and slot values to prompts; a question is kept only if it is sound on both databases.

Sound: every strategy of a reading returns the same rows, never none, and different readings return different
rows. An answer that says nothing (NULL, or the number 1 on both databases) is met by many a wrong query.
"""

from pathlib import Path

from stages.domains.protocol import Prompt, Split
from stages.domains.sql import slots
from stages.domains.sql.compare import Rows, same
from stages.domains.sql.families import BY_NAME, FAMILIES, Family
from stages.domains.sql.sandbox import Refused
from stages.domains.sql.verifier import Verifier

MOST_COMPOSITIONS = 25
"""Questions of a held-out family; their values are those of pre-training: only the composition is new."""


def make_prompts(folder: Path, verifier: Verifier) -> list[Prompt]:
    values = slots.real_values(folder)
    prompts = []
    for family in FAMILIES:
        made = 0
        for value in values[family.slot]:
            split = slots.split_of(value)
            if family.held_out and (split is not Split.PRETRAIN or made == MOST_COMPOSITIONS):
                continue
            if is_sound(family, value, verifier):
                made += 1
                prompts.append(_prompt(family, value, Split.TEST_COMPOSITIONS if family.held_out else split))
    return prompts


def _prompt(family: Family, value: str, split: Split) -> Prompt:
    references = {name: queries[0] for name, queries in family.strategies(value).items()}
    return Prompt(
        id=f"sql/{family.name}/{value}",
        domain="sql",
        capability=family.name,
        text=family.question(value),
        payload={
            "family": family.name,
            "slot": family.slot,
            "value": value,
            "ambiguity": family.ambiguity,
            "readings": references,
        },
        split=split,
        answer_class="open",
    )


def is_sound(family: Family, value: str, verifier: Verifier) -> bool:
    """See the module's docstring."""
    seen: list[tuple[Rows, ...]] = []
    for queries in family.strategies(value).values():
        reference = verifier.reference(queries[0])
        if reference is None or _says_nothing(reference.results):
            return False
        for database, expected in zip(verifier.databases, reference.results, strict=True):
            for query in queries[1:]:
                try:
                    rows = database.query(query, len(expected))
                except Refused:
                    return False
                if not same(rows, expected, reference.ordered):
                    return False
        for other in seen:
            if any(same(a, b, ordered=False) for a, b in zip(reference.results, other, strict=True)):
                return False
        seen.append(reference.results)
    return True


def _says_nothing(results: tuple[Rows, ...]) -> bool:
    return any(rows == [(None,)] for rows in results) or all(rows == [(1,)] for rows in results)


def family_of(prompt: Prompt) -> Family:
    return BY_NAME[prompt.payload["family"]]
