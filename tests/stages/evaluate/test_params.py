"""Parameters that cannot be carried out are refused before any work."""

import pytest
from pydantic import ValidationError

from stages.evaluate.params import EvaluateParams


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"samples": 64}, "k = 128 needs as many samples, got 64"),
        ({"ks": (8, 32)}, "ascend from 1"),
        ({"ks": (1, 8, 8)}, "ascend from 1"),
        ({"ks": ()}, "ascend from 1"),
        ({"prompts": {"test-values": 0}}, "at least 1"),
        ({"prompts": {"train": 5}}, "held-out"),
        ({"prompts": {}}, "at least 1 item"),
        ({"prompts": {"test": 5}}, "test-compositions"),
        ({"n": 5}, "Extra inputs"),
    ],
)
def test_refusals(changed, match):
    with pytest.raises(ValidationError, match=match):
        EvaluateParams(**changed)


def test_a_limit_may_be_left_open():
    assert EvaluateParams(prompts={"test-values": None}).prompts == {"test-values": None}
