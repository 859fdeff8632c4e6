"""Which advantage each choice of a recipe gives to which sample, written out; and what length costs."""

from types import SimpleNamespace

import pytest
import torch

from data_contracts.values import StopReason
from stages.domains.pool import Judgement
from stages.domains.protocol import Unscorable, Verdict
from stages.engines.params import Sampling
from stages.engines.protocol import Rollout
from stages.estimators.params import (
    AllCorrect,
    DrGrpo,
    Gae,
    Grpo,
    Overlong,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Rloo,
    Scope,
    SequenceMean,
    SignBalance,
)
from stages.rl.worth import with_variance_P, worth
from stages.sampling.judged import Judged

SAMPLING = Sampling(max_new_tokens=8, temperature=1.3)
REWARDS = [[1, 0, 0, None], [1, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]]  # None: no verdict
NOTHING = [0, 0, 0, 0]
MEAN, STD = 8 / 15, (56 / 225) ** 0.5  # of the batch: 8 of 15 are right
WITHIN_STD = ((2 / 3 + 3 / 4) / 15) ** 0.5  # of the differences to group means
CHOICES = {
    "grpo": (
        Grpo(),
        [[2**0.5, -(0.5**0.5), -(0.5**0.5), 0], [3**-0.5, 3**-0.5, -(3**0.5), 3**-0.5], NOTHING, NOTHING],
    ),
    "dr_grpo": (DrGrpo(), [[2 / 3, -1 / 3, -1 / 3, 0], [0.25, 0.25, -0.75, 0.25], NOTHING, NOTHING]),
    "rloo": (Rloo(), [[1, -0.5, -0.5, 0], [1 / 3, 1 / 3, -1, 1 / 3], NOTHING, NOTHING]),
    "reinforce_pp": (
        ReinforcePlusPlus(),
        [[0 if reward is None else (reward - MEAN) / STD for reward in group] for group in REWARDS],
    ),
    "reinforce_pp_baseline": (
        ReinforcePlusPlusBaseline(),
        [
            [2 / 3 / WITHIN_STD, -1 / 3 / WITHIN_STD, -1 / 3 / WITHIN_STD, 0],
            [0.25 / WITHIN_STD, 0.25 / WITHIN_STD, -0.75 / WITHIN_STD, 0.25 / WITHIN_STD],
            NOTHING,
            NOTHING,
        ],
    ),
    "signbalance": (SignBalance(), [[1, -0.5, -0.5, 0], [1, 1, -3, 1], NOTHING, NOTHING]),
    "signbalance, clamped": (
        SignBalance(rho_max=2.0),
        [[1, -0.5, -0.5, 0], [1, 1, -2, 1], NOTHING, NOTHING],
    ),
    "signbalance, as the paper": (
        SignBalance(all_correct=AllCorrect.PAPER),
        [[1, -0.5, -0.5, 0], [1, 1, -3, 1], [1, 1, 1, 1], NOTHING],
    ),
    "signbalance, batch": (
        SignBalance(scope=Scope.BATCH),
        [[1, -8 / 7, -8 / 7, 0], [1, 1, -8 / 7, 1], [1, 1, 1, 1], [-8 / 7] * 4],
    ),
    "gae": (Gae(), [NOTHING] * 4),  # the critic comes later
}


def judged(rewards, lengths=None):
    lengths = lengths or [[3] * len(group) for group in rewards]
    return [
        [
            Judged(
                SimpleNamespace(prompt=SimpleNamespace(id=str(place))),
                [1],
                sample,
                Rollout(place, [2] * length, [-1.0] * length, StopReason.EOS, 0, 0, SAMPLING),
                "",
                Judgement(
                    Verdict(unscorable=Unscorable.WALL_CLOCK) if reward is None else Verdict(reward=reward),
                    None,
                ),
            )
            for sample, (reward, length) in enumerate(zip(group, of_group, strict=True))
        ]
        for place, (group, of_group) in enumerate(zip(rewards, lengths, strict=True))
    ]


@pytest.fixture
def params(rl_params):
    def make(advantage, **changes):
        if isinstance(advantage, SignBalance):
            changes["aggregation"] = SequenceMean()
        return rl_params(advantage=advantage, sampling=SAMPLING, **changes)

    return make


@pytest.mark.parametrize("name", CHOICES)
def test_each_choice_gives_its_own_advantages(params, name):
    choice, expected = CHOICES[name]
    found = worth(judged(REWARDS), params(choice))
    torch.testing.assert_close(
        found.advantages.values_PG, torch.tensor(expected, dtype=torch.float32), rtol=0, atol=1e-6
    )
    everywhere = name in ("gae", "reinforce_pp", "signbalance, batch")
    paper = name == "signbalance, as the paper"
    assert found.advantages.informative_P.tolist() == [True, True, everywhere or paper, everywhere]
    assert found.scorable_PG.tolist() == [[reward is not None for reward in group] for group in REWARDS]


@pytest.mark.parametrize(
    ("choice", "clamped", "largest"),
    [
        (SignBalance(), 0, 3),
        (SignBalance(rho_max=2.0), 1 / 4, 3),  # one of four groups
        (SignBalance(rho_max=0.2), 2 / 4, 3),
        (SignBalance(scope=Scope.BATCH), 0, 8 / 7),
        (SignBalance(scope=Scope.BATCH, rho_max=1.0), 1, 8 / 7),  # the batch's only ratio
    ],
)
def test_signbalance_tells_what_it_clamped(params, choice, clamped, largest):
    found = worth(judged(REWARDS), params(choice)).metrics
    assert found == {
        "clamped": pytest.approx(clamped),
        "all_correct": 1 / 4,
        "all_wrong": 1 / 4,
        "largest_ratio": pytest.approx(largest),
    }


def test_length_costs_reward_from_the_cache_on(params):
    """max_new_tokens 8, cache 4: nothing up to 4 tokens, then a quarter a token."""
    lengths = [[4, 5, 6, 8], [1, 2, 3, 4], [5, 7, 8, 8], [8, 8, 8, 8]]
    groups = judged(REWARDS, lengths)
    found = worth(groups, params(DrGrpo(), overlong=Overlong(cache=4)))
    expected = torch.tensor([[1, -0.25, -0.5, 0], [1, 1, 0, 1], [0.75, 0.25, 0, 0], [-1, -1, -1, -1]])
    assert torch.equal(found.rewards_PG[found.scorable_PG], expected[found.scorable_PG])
    flat = found.advantages.values_PG[2]  # a group of one verdict varies by its lengths
    torch.testing.assert_close(flat, torch.tensor([0.5, 0.0, -0.25, -0.25]))
    assert found.advantages.informative_P.tolist() == [True, True, True, False]
    assert with_variance_P(groups) == [True, True, False, False]  # of verdicts, whatever length costs
    plain = worth(groups, params(DrGrpo()))
    assert torch.equal(plain.rewards_PG, torch.tensor([[r or 0.0 for r in group] for group in REWARDS]))
