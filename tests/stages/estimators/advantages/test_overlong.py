"""DAPO's Eq. 13 against its three cases written out."""

import pytest
import torch
from torch import tensor

from stages.errors import GuardError
from stages.estimators.advantages import overlong_penalty


def by_cases(length, longest, cache):
    if length <= longest - cache:
        return 0.0
    return ((longest - cache) - length) / cache if length <= longest else -1.0


@pytest.mark.parametrize("longest, cache", [(10, 4), (10, 10), (10, 1), (16384, 4096)])
def test_the_three_cases(longest, cache):
    lengths = list(range(0, 2 * longest, max(1, longest // 10)))
    found = overlong_penalty(tensor([lengths]), longest, cache)
    assert found.tolist()[0] == pytest.approx([by_cases(length, longest, cache) for length in lengths])
    assert found.is_floating_point()


def test_ends_of_the_slope():
    assert overlong_penalty(tensor([6, 7, 10, 11]), 10, 4).tolist() == [0.0, -0.25, -1.0, -1.0]


def test_refusals():
    for longest, cache in ((10, 0), (10, 11)):
        with pytest.raises(GuardError, match=f"cache is {cache}, but max_new_tokens is {longest}"):
            overlong_penalty(torch.ones(1, 1), longest, cache)
    with pytest.raises(GuardError, match="negative length"):
        overlong_penalty(tensor([-1]), 10, 4)
