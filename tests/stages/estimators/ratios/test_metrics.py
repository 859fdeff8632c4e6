"""Ratio metrics against exact expectations over an enumerated sampler, and their additivity."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.proof.tabular import Tabular
from stages.estimators.params import Level, Mask, Ratio
from stages.estimators.ratios import RatioSums, observe, weights_BT

NEUTRAL = {
    "weight_ess": 1.0,
    "weights_bounded": 0.0,
    "clip_fraction": 0.0,
    "k1": 0.0,
    "k3": 0.0,
    "ess": 1.0,
    "chi2": 0.0,
    "truncated": 0.0,
    "vetoed": 0.0,
    "bounded": 0.0,
    "staleness": 0.0,
    "stalest": 0.0,
}


@pytest.mark.oracle("9.1")
def test_identical_policies_have_ratio_one_and_no_divergence_exactly():
    logprobs = -9 * torch.rand(3, 4)
    assert observe(logprobs - logprobs.clone(), torch.ones(3, 4)).metrics() == NEUTRAL


def test_no_token_is_neutral():
    assert RatioSums().metrics() == NEUTRAL
    assert observe(torch.full((2, 2), float("nan")), torch.zeros(2, 2)).metrics() == NEUTRAL


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_expectations_over_the_sampler_are_the_exact_divergences(seed):
    p = Tabular.random(6, 1, seed)
    q = p.near(seed + 1, 0.7)
    log_p, log_q = (policy.logprobs_ST().detach() for policy in (p, q))
    expected = {"k1": 0.0, "k3": 0.0, "chi2": 0.0}
    for row, share in enumerate(q.probability_S().tolist()):
        metrics = observe((log_p - log_q)[row : row + 1], p.mask_ST[:1]).metrics()
        for name in expected:
            expected[name] += share * metrics[name]
    kl = (log_q.exp() * (log_q - log_p)).sum().item()
    chi2 = (log_p.exp().square() / log_q.exp()).sum().item() - 1
    assert expected == pytest.approx({"k1": kl, "k3": kl, "chi2": chi2}, abs=1e-10)


@pytest.mark.oracle("9.6")
@pytest.mark.oracle("9.7")
@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8))
def test_k3_is_never_negative_and_ess_is_a_share(log_ratios):
    metrics = observe(
        torch.tensor([log_ratios], dtype=torch.float64), torch.ones(1, len(log_ratios))
    ).metrics()
    assert metrics["k3"] >= 0
    assert 0 < metrics["ess"] <= 1
    for log_ratio in log_ratios:
        assert observe(torch.tensor([[log_ratio]]), torch.ones(1, 1)).metrics()["k3"] >= 0


def test_metrics_of_known_ratios():
    ratios = torch.tensor([[0.5, 1.0, 1.25, 2.0], [1e-3, 1.0, 7.0, 7.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    weights = weights_BT(ratios.log(), mask, Ratio(regulariser=Mask(low=0.6, high=1.9), veto_below=1e-2))
    clipped = torch.tensor([[1, 0, 0, 1], [0, 0, 1, 1]]).bool()
    age = torch.tensor([[0, 1, 1, 4], [0, 0, 9, 9]])
    sums = observe(ratios.log(), mask, weights, clipped, age)
    used = [0.5, 1.0, 1.25, 2.0, 1e-3, 1.0]
    assert sums.weight_mean == pytest.approx((1.0 + 1.25) / 6)
    assert sums.metrics() == pytest.approx(
        {
            "clip_fraction": 2 / 6,
            "k1": -sum(math.log(ratio) for ratio in used) / 6,
            "k3": sum(ratio - 1 - math.log(ratio) for ratio in used) / 6,
            "ess": sum(used) ** 2 / (6 * sum(ratio**2 for ratio in used)),
            "chi2": sum(ratio**2 for ratio in used) / 6 - 1,
            "weight_ess": (1.0 + 1.25) ** 2 / (6 * (1.0 + 1.25**2)),
            "weights_bounded": 0.0,
            "truncated": 3 / 6,
            "vetoed": 1 / 2,
            "bounded": 0.0,
            "staleness": 1.0,
            "stalest": 4.0,
        }
    )


def test_sums_add_up_over_micro_batches_whatever_the_split():
    drawn = torch.Generator().manual_seed(5)
    log_ratio = 3 * torch.randn(7, 4, generator=drawn)
    mask = torch.rand(7, 4, generator=drawn) < 0.6
    mask[3] = False
    log_ratio = log_ratio.where(mask, float("nan"))
    clipped, age = torch.rand(7, 4, generator=drawn) < 0.5, torch.randint(0, 9, (7, 4), generator=drawn)
    ratio = Ratio(veto_below=0.1)

    def sums(rows):
        weights = weights_BT(log_ratio[rows], mask[rows], ratio)
        return observe(log_ratio[rows], mask[rows], weights, clipped[rows], age[rows])

    whole = sums([0, 1, 2, 3, 4, 5, 6])
    parts = sum((sums(rows) for rows in ([4, 0], [3], [6, 2, 5], [1])), RatioSums())
    assert parts.tokens == int(mask.sum()) and parts.sequences == int(mask.any(1).sum())
    assert parts.metrics() == pytest.approx(whole.metrics(), rel=1e-12)
    assert whole.metrics()["stalest"] == age[mask].max()
    assert 0 < whole.metrics()["vetoed"] < 1


def test_bounded_ratios_are_a_share_of_the_tokens():
    metrics = observe(torch.tensor([[50.0, -50.0, 0.0, 1.0]]), torch.ones(1, 4)).metrics()
    assert metrics["bounded"] == 0.5 and math.isfinite(metrics["chi2"])


def test_a_sequence_ratio_that_is_held_at_the_bound_leaves_a_trace():
    """Each token's ratio is far from e^20, the product of the row is not."""
    log_ratio, mask = torch.full((2, 5), 6.0, dtype=torch.float64), torch.ones(2, 5)
    log_ratio[1] = 0.1
    weights = weights_BT(log_ratio, mask, Ratio(level=Level.SEQUENCE))
    metrics = observe(log_ratio, mask, weights).metrics()
    assert (metrics["weights_bounded"], metrics["bounded"]) == (1.0, 0.0)
    held, other = math.exp(20.0), math.exp(0.5)
    expected = (5 * held + 5 * other) ** 2 / (10 * (5 * held**2 + 5 * other**2))
    assert metrics["weight_ess"] == pytest.approx(expected) and metrics["ess"] > metrics["weight_ess"]
