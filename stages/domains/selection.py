"""Which prompts are taken when not all are: as many of every capability as there are."""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest

from stages.domains.prompt_table import PromptRow


def choose(rows: Sequence[PromptRow], limit: int | None, seed: int) -> list[PromptRow]:
    """At most `limit` rows, taken in turn from each capability's shuffled prompts; in their stored order."""
    return [rows[index] for index in chosen([row.prompt.capability for row in rows], limit, seed)]


def chosen(capabilities: Sequence[str], limit: int | None, seed: int) -> list[int]:
    """Places of the chosen, given each one's capability; see `choose`."""
    if limit is None or limit >= len(capabilities):
        return list(range(len(capabilities)))
    by_capability: dict[str, list[int]] = defaultdict(list)
    for index, capability in enumerate(capabilities):
        by_capability[capability].append(index)
    for capability, indices in by_capability.items():
        random.Random(f"{seed}/{capability}").shuffle(indices)
    turns = zip_longest(*(by_capability[capability] for capability in sorted(by_capability)))
    taken = [index for index in chain.from_iterable(turns) if index is not None][:limit]
    return sorted(taken)
