"""Which choices of an estimator do not go together, each with a sentence that says what to do; torch-free.

The decision table is methods.md 3(c); the other rules are guards of sections 4, 6 and 9.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.estimators.params import EstimatorParams


def refuse_impossible(params: "EstimatorParams") -> None:
    """Raises ValueError for the first pair of choices that cannot be meant."""
