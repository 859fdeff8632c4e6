"""DAPO's soft punishment of length (arXiv 2503.14476, Eq. 13), added to a reward."""

from torch import Tensor

from stages.errors import GuardError


def overlong_penalty(lengths_PG: Tensor, max_tokens: int, cache: int) -> Tensor:
    """0 up to max_tokens - cache, then linearly down to -1 at max_tokens and beyond; float, any shape.

    `lengths_PG`: whole completions in tokens, before anything is masked.
    Raises GuardError unless 1 <= cache <= max_tokens, and for negative lengths.
    """
    if not 1 <= cache <= max_tokens:
        raise GuardError(
            f"overlong.cache is {cache}, but max_new_tokens is {max_tokens}: set 1 <= cache <= max_new_tokens"
        )
    if (lengths_PG < 0).any():
        raise GuardError("a completion has a negative length: pass the number of its tokens")
    return ((max_tokens - cache - lengths_PG) / cache).clamp(min=-1.0, max=0.0)
