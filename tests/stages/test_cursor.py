"""Steps cover each epoch exactly once, and a step's rows depend on the step alone."""

from hypothesis import given
from hypothesis import strategies as st

from stages.cursor import parts, rows_of_step


@given(
    count=st.integers(1, 40), per_step=st.integers(1, 50), seed=st.integers(0, 5), epochs=st.integers(1, 3)
)
def test_each_epoch_has_every_row_once(count: int, per_step: int, seed: int, epochs: int) -> None:
    steps = -(-count * epochs // per_step)
    taken = [row for step in range(steps) for row in rows_of_step(count, per_step, step, seed)]
    for epoch in range(epochs):
        assert sorted(taken[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_epochs_and_seeds_differ() -> None:
    first = rows_of_step(30, 30, 0, seed=1)
    assert first != rows_of_step(30, 30, 1, seed=1)
    assert first != rows_of_step(30, 30, 0, seed=2)
    assert first == rows_of_step(30, 30, 0, seed=1)


def test_parts_cover_all_rows() -> None:
    assert [list(part) for part in parts(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
