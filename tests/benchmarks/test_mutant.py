"""A mutant whose text moved is an error, not a mutant that survived."""

import pytest

from benchmarks.proof.mutant import Mutant


def test_text_that_is_not_there_exactly_once_is_an_error() -> None:
    mutant = Mutant("twice", "file.py", "a", "b")
    assert mutant.applied("x = a") == "x = b"
    with pytest.raises(ValueError, match="2 times, not once"):
        mutant.applied("a + a")
    with pytest.raises(ValueError, match="0 times, not once"):
        mutant.applied("c")
    with pytest.raises(ValueError, match="changes nothing"):
        Mutant("same", "file.py", "a", "a").applied("a")
