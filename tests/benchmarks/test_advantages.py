"""The benchmark's prompt weights against their closed forms, and its moments against batches really drawn."""

from math import comb

import pytest
import torch

from benchmarks.proof.advantages import (
    CHOICES,
    GROUP,
    SUCCESS,
    advantages_PG,
    classes,
    expectation_and_variance,
    moments,
    prompt,
    refusal,
)
from benchmarks.proof.bias import REGULARISERS, scores_SP
from stages.estimators.params import Level, Ratio

PROMPTS = [prompt(seed, success) for seed, success in enumerate(SUCCESS)]
BATCHES = 20_000


def of_prompt(p, weight_of_right):
    """Sum over the number of right samples n of its probability x what n right ones give, over p (1 - p)."""
    total = sum(
        comb(GROUP, n) * p**n * (1 - p) ** (GROUP - n) * weight_of_right(n) for n in range(1, GROUP + 1)
    )
    return total / (GROUP * p * (1 - p))


CLOSED = {
    "rloo": lambda p: 1.0,
    "dr_grpo": lambda p: 1 - 1 / GROUP,
    "grpo": lambda p: of_prompt(p, lambda n: (n * (GROUP - n)) ** 0.5),
    "signbalance": lambda p: (1 - p ** (GROUP - 1)) / (1 - p),
    "signbalance, paper": lambda p: (1 - p**GROUP) / (1 - p),
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_prompts_weight_is_the_closed_form(name):
    found = moments(name, PROMPTS, "exact r", False)
    hard, easy = (float(own.sampler.probability_S() @ own.reward_S) for own in PROMPTS)
    assert found.weight_hard == pytest.approx(CLOSED[name](hard), abs=1e-10)
    assert found.weight_easy == pytest.approx(CLOSED[name](easy), abs=1e-10)
    assert found.beside < 1e-10


@pytest.mark.parametrize("name", CHOICES)
def test_expectation_and_variance_are_those_of_drawn_batches(name):
    ratio = Ratio(level=Level.TOKEN, regulariser=REGULARISERS["clip [.8, 1.2]"])
    scores = [scores_SP(own, ratio, False) for own in PROMPTS]
    expected, variance = expectation_and_variance(
        name, [classes(own, z) for own, z in zip(PROMPTS, scores, strict=True)]
    )
    drawn = torch.Generator().manual_seed(0)
    rows_NPG = torch.stack(
        [
            torch.multinomial(own.sampler.probability_S(), BATCHES * GROUP, True, generator=drawn)
            for own in PROMPTS
        ],
        1,
    ).view(BATCHES, GROUP, 2)
    rows_NPG = rows_NPG.transpose(1, 2)
    verdicts_NPG = torch.stack([own.reward_S[rows_NPG[:, p]] for p, own in enumerate(PROMPTS)], 1)
    patterns, which_N = torch.unique(verdicts_NPG.flatten(1), dim=0, return_inverse=True)
    values = torch.stack([advantages_PG(CHOICES[name], pattern.view(2, GROUP)) for pattern in patterns])
    values_NPG = values[which_N] / (2 * GROUP)
    gradient_NPW = torch.stack(
        [torch.einsum("ng,ngw->nw", values_NPG[:, p], z[rows_NPG[:, p]]) for p, z in enumerate(scores)], 1
    )
    assert float(gradient_NPW.flatten(1).var(0).sum()) == pytest.approx(variance, rel=0.05)
    error = float((gradient_NPW.mean(0) - expected).norm())
    assert error < 2 * (variance / BATCHES) ** 0.5  # the root of its mean square, twice


def test_centering_is_taken_with_a_plain_group_baseline_only():
    for name, choice in CHOICES.items():
        assert refusal(choice, "clip [.8, 1.2]", centred=False) is None
        assert (refusal(choice, "clip [.8, 1.2]", centred=True) is None) == (name in ("rloo", "dr_grpo"))
