"""Regularisers, veto, and weighted mass against the formulas written with scalars."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import GuardError
from stages.estimators.params import Clip, Level, Mask, Ratio, Truncate, Uncorrected, Unregularised
from stages.estimators.ratios import (
    RatioSums,
    batch_normalised_BT,
    observe,
    touched,
    weight,
    weighted_mass_NV,
    weights_BT,
)

NAN, INF = float("nan"), float("inf")
REGULARISERS = [
    Unregularised(),
    Uncorrected(),
    Truncate(high=1.5),
    Truncate(high=1.0),
    Clip(low=0.8, high=1.2),
    Clip(low=0.0, high=3.0),
    Mask(low=0.5, high=2.0),
]


def by_hand(ratio, regulariser):
    match regulariser:
        case Unregularised():
            return ratio
        case Uncorrected():
            return 1.0
        case Truncate():
            return ratio if ratio < regulariser.high else regulariser.high
        case Clip():
            return sorted([regulariser.low, ratio, regulariser.high])[1]
        case Mask():
            return ratio if regulariser.low <= ratio <= regulariser.high else 0.0


@pytest.mark.parametrize("regulariser", REGULARISERS, ids=str)
def test_weight_is_the_function_of_its_source(regulariser):
    ratios = [1e-9, 0.1, 0.499, 0.501, 0.79, 0.81, 1.0, 1.19, 1.21, 1.49, 1.51, 1.99, 2.01, 3.5, 1e6]
    log_ratio = torch.tensor(ratios, dtype=torch.float64).log().requires_grad_()
    found = weight(log_ratio, regulariser)
    assert not found.requires_grad
    assert found.tolist() == pytest.approx([by_hand(ratio, regulariser) for ratio in ratios], rel=1e-12)
    moved = [by_hand(ratio, regulariser) != ratio for ratio in ratios]
    assert touched(log_ratio, regulariser).tolist() == (
        [False] * len(ratios) if isinstance(regulariser, Uncorrected) else moved
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_weight_is_a_function_of_the_ratio_of_its_level(seed):
    drawn = torch.Generator().manual_seed(seed)
    log_ratio = torch.randn(5, 3, dtype=torch.float64, generator=drawn)
    mask = torch.ones(5, 3)
    for regulariser in REGULARISERS:
        found = {
            level: weights_BT(log_ratio, mask, Ratio(level=level, regulariser=regulariser)).values_BT.tolist()
            for level in Level
        }
        for row, values in enumerate(log_ratio.tolist()):
            for place, value in enumerate(values):
                ratios = {
                    Level.TOKEN: math.exp(value),
                    Level.SEQUENCE: math.exp(math.fsum(values)),
                    Level.GEOMETRIC: math.exp(math.fsum(values) / 3),
                }
                for level, ratio in ratios.items():
                    assert found[level][row][place] == pytest.approx(by_hand(ratio, regulariser), rel=1e-12)


@pytest.mark.oracle("9.3")
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(1, 5), st.sampled_from(Level))
def test_truncated_below_the_cap_clipped_in_the_band_masked_to_its_support(seed, low, high, level):
    drawn = torch.Generator().manual_seed(seed)
    log_ratio = 2 * torch.randn(8, 4, dtype=torch.float64, generator=drawn)
    mask = torch.rand(8, 4, generator=drawn) < 0.8
    plain = weights_BT(log_ratio, mask, Ratio(level=level, regulariser=Unregularised())).values_BT[mask]
    for regulariser in (Truncate(high=high), Clip(low=low, high=high), Mask(low=low, high=high)):
        weights = weights_BT(log_ratio, mask, Ratio(level=level, regulariser=regulariser))
        values = weights.values_BT[mask]
        assert not weights.values_BT[~mask].any() and not weights.truncated_BT[~mask].any()
        assert (values <= high).all()
        inside = (plain <= high) & ((plain >= low) | isinstance(regulariser, Truncate))
        assert torch.equal(values[inside], plain[inside])
        assert torch.equal(weights.truncated_BT[mask], ~inside)
        if isinstance(regulariser, Clip):
            assert (values >= low).all()
        if isinstance(regulariser, Mask):
            assert not values[~inside].any()


@pytest.mark.oracle("9.1")
@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("regulariser", REGULARISERS, ids=str)
def test_identical_policies_have_weight_one_exactly(level, regulariser):
    logprobs = -9 * torch.rand(3, 4)
    ratio = Ratio(level=level, regulariser=regulariser, veto_below=0.99)
    weights = weights_BT(logprobs - logprobs.clone(), torch.ones(3, 4), ratio)
    assert torch.equal(weights.values_BT, torch.ones(3, 4))
    assert not weights.truncated_BT.any() and not weights.vetoed_B.any() and weights.bounded == 0


@pytest.mark.oracle("9.5")
@pytest.mark.parametrize("level", Level)
def test_veto_kills_exactly_the_sequences_with_a_ratio_below_the_threshold(level):
    threshold = 1e-2
    ratios = torch.tensor(
        [
            [1.0, 0.0101, 1.0],  # above
            [1.0, 0.0099, 400.0],  # below, although the product is not
            [0.2, 0.2, 0.2],  # the product is below, no token is
            [1.0, 1.0, 1e-9],  # below only where masked
            [0.0, 1.0, 1.0],  # a token that the policy never draws
            [1.0, 1.0, 1.0],
        ],
        dtype=torch.float64,
    )
    mask = torch.ones(6, 3, dtype=torch.bool)
    mask[3, 2] = False
    ratio = Ratio(level=level, regulariser=Unregularised(), veto_below=threshold)
    weights = weights_BT(ratios.log(), mask, ratio)
    assert weights.vetoed_B.tolist() == [False, True, False, False, True, False]
    assert not weights.values_BT[weights.vetoed_B].any()
    assert (weights.values_BT[~weights.vetoed_B][mask[~weights.vetoed_B]] > 0).all()
    without = weights_BT(ratios.log(), mask, ratio.model_copy(update={"veto_below": None}))
    assert not without.vetoed_B.any()
    kept = ~weights.vetoed_B
    assert torch.equal(without.values_BT[kept], weights.values_BT[kept])


def test_weights_are_detached_from_the_policy():
    log_ratio = torch.randn(2, 3, requires_grad=True)
    for regulariser in REGULARISERS:
        assert not weights_BT(
            log_ratio, torch.ones(2, 3), Ratio(regulariser=regulariser)
        ).values_BT.requires_grad


@pytest.mark.parametrize("regulariser", REGULARISERS, ids=str)
@pytest.mark.parametrize("placeholder", [NAN, INF, -INF])
def test_masked_placeholders_have_weight_zero_and_veto_nothing(regulariser, placeholder):
    log_ratio = torch.tensor([[0.0, placeholder], [placeholder, placeholder]])
    mask = torch.tensor([[1, 0], [0, 0]])
    weights = weights_BT(log_ratio, mask, Ratio(regulariser=regulariser, veto_below=0.5))
    assert weights.values_BT[mask == 0].tolist() == [0, 0, 0]
    assert not weights.vetoed_B.any() and not weights.truncated_BT.any() and weights.bounded == 0


def test_bounded_ratios_are_reported():
    weights = weights_BT(
        torch.tensor([[100.0, -INF, 0.0]]), torch.ones(1, 3), Ratio(regulariser=Unregularised())
    )
    assert weights.bounded == 2
    assert weights.values_BT.tolist()[0] == pytest.approx([math.exp(20), math.exp(-20), 1.0], rel=1e-5)


# q f(p / q)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_weighted_mass_is_the_sampler_times_the_weight(seed):
    drawn = torch.Generator().manual_seed(seed)
    logp, logq = (2 * torch.randn(3, 6, dtype=torch.float64, generator=drawn) for _ in range(2))
    logp, logq = logp.log_softmax(-1), logq.log_softmax(-1)
    for regulariser in REGULARISERS:
        found = weighted_mass_NV(logp.requires_grad_(), logq, regulariser)
        assert not found.requires_grad
        assert torch.allclose(found, logq.exp() * weight(logp - logq, regulariser), rtol=1e-12, atol=0)


@pytest.mark.parametrize("regulariser", REGULARISERS, ids=str)
def test_weighted_mass_has_no_overflow_and_no_mass_where_the_sampler_has_none(regulariser):
    logp = torch.tensor([[-0.7, -INF, -1.0, -2.0, -INF]])
    logq = torch.tensor([[-INF, -0.5, -95.0, -1.0, -INF]])
    found = weighted_mass_NV(logp, logq, regulariser)
    assert found.isfinite().all()
    assert found[0, 0] == 0 and found[0, 4] == 0
    assert (found[0, 2] <= math.exp(-1.0) + 1e-6).all()
    low = getattr(regulariser, "low", 0.0) if isinstance(regulariser, Clip) else 0.0
    never = 1.0 if isinstance(regulariser, Uncorrected) else low  # f(0)
    assert found[0, 1].item() == pytest.approx(never * math.exp(-0.5), rel=1e-6)


# weights of mean 1


@pytest.mark.oracle("9.4")
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_batch_normalised_weights_have_mean_one_over_all_micro_batches(seed, cut):
    drawn = torch.Generator().manual_seed(seed)
    log_ratio = torch.randn(6, 4, dtype=torch.float64, generator=drawn)
    mask = torch.rand(6, 4, generator=drawn) < 0.7
    mask[:, 0] = True
    ratio, parts = Ratio(regulariser=Truncate(high=2.0)), [slice(0, cut), slice(cut, 6)]
    weights = [weights_BT(log_ratio[part], mask[part], ratio) for part in parts]
    sums = sum(
        (observe(log_ratio[part], mask[part], own) for part, own in zip(parts, weights, strict=True)),
        RatioSums(),
    )
    normalised = torch.cat(
        [
            batch_normalised_BT(own.values_BT, mask[part], sums.weight_mean)
            for part, own in zip(parts, weights, strict=True)
        ]
    )
    assert normalised[mask].mean().item() == pytest.approx(1.0, abs=1e-12)
    assert not normalised[~mask].any()
    before = torch.cat([own.values_BT for own in weights])
    assert torch.allclose(normalised * before[0, 0], before * normalised[0, 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("mean", [0.0, NAN, INF, -1.0])
def test_a_batch_without_weight_is_refused(mean):
    with pytest.raises(GuardError, match="take fresher samples"):
        batch_normalised_BT(torch.zeros(1, 2), torch.ones(1, 2), mean)
