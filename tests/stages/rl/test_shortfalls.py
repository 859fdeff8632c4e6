"""What a run had to do without is counted by step and told once, at its end."""

from collections import Counter

import pytest

from stages.estimators.params import DynamicSampling, SequenceMean, SignBalance
from stages.rl.params import RlParams
from stages.rl.shortfalls import Shortfall, of_step, told

DYNAMIC = RlParams(dynamic_sampling=DynamicSampling(max_rounds=3), prompts_per_step=8)
STEEP = RlParams(advantage=SignBalance(), aggregation=SequenceMean())
CLAMPED = RlParams(advantage=SignBalance(rho_max=5.0), aggregation=SequenceMean())


@pytest.mark.parametrize(
    ("params", "groups", "idle", "metrics", "expected"),
    [
        (RlParams(), 8, False, {}, set()),
        (RlParams(), 3, True, {}, {Shortfall.IDLE}),
        (DYNAMIC, 7, False, {}, {Shortfall.FEW_GROUPS}),
        (DYNAMIC, 8, False, {}, set()),
        (STEEP, 8, False, {"largest_ratio": 4.1}, {Shortfall.STEEP}),
        (STEEP, 8, False, {"largest_ratio": 4.0}, set()),
        (CLAMPED, 8, False, {"largest_ratio": 15.0}, set()),
        (RlParams(), 8, False, {"head_mass": 0.98}, {Shortfall.THIN_HEAD}),
        (RlParams(), 8, False, {"head_mass": 0.995}, set()),
    ],
)
def test_a_step_falls_short_of_what_its_recipe_wants(params, groups, idle, metrics, expected):
    assert of_step(params, groups, idle, metrics) == expected


def test_each_kind_is_told_once_with_its_count():
    assert told(Counter(), DYNAMIC) == []
    sentences = told(Counter({Shortfall.IDLE: 2, Shortfall.FEW_GROUPS: 5}), DYNAMIC)
    assert sentences[0].startswith("2 steps had neither reward variance nor elites")
    assert sentences[1].startswith("5 steps had fewer than 8 groups with reward variance after 3 rounds")
    assert len(sentences) == 2
    assert "rho_max" in told(Counter({Shortfall.STEEP: 1}), STEEP)[0]
    assert "raise centering.k" in told(Counter({Shortfall.THIN_HEAD: 1}), RlParams())[0]
