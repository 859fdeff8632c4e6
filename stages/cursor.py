"""Which rows a step takes: a seeded permutation per epoch, computed from the step alone.

There is no cursor to save: step s of a resumed run takes what step s of an undisturbed one took, and each
epoch takes every row exactly once.
"""

import random
from collections.abc import Iterator


def rows_of_step(count: int, per_step: int, step: int, seed: int) -> list[int]:
    """The `per_step` row indices of `step`, out of `count` rows; epochs follow each other without a gap."""
    first = step * per_step
    epochs = {place // count for place in range(first, first + per_step)}
    order = {epoch: _permutation(count, seed, epoch) for epoch in epochs}
    return [order[place // count][place % count] for place in range(first, first + per_step)]


def _permutation(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def parts(count: int, size: int) -> Iterator[range]:
    """Consecutive ranges of at most `size` that cover `count` rows."""
    for start in range(0, count, size):
        yield range(start, min(start + size, count))
