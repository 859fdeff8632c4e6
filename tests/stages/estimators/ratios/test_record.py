"""What is refused before a ratio is taken, and that ratios are 1 where the record is right."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import GuardError
from stages.estimators.blockwise import at_positions, picked_logprob_N, target_logprobs_BT
from stages.estimators.distribution import TopHead
from stages.estimators.params import Level, Ratio, Unregularised
from stages.estimators.ratios import (
    Behaviour,
    Recomputed,
    fresh_groups_P,
    on_support_NV,
    require_recomputed,
    require_same_distribution,
    weights_BT,
)

VERSIONS = torch.tensor([[3, 3, 4], [4, 4, 0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def behaviour(**changed):
    record = {
        "logprobs_BT": -torch.ones(2, 3),
        "mask_BT": MASK,
        "weight_version_BT": VERSIONS,
        "scored_version_BT": VERSIONS.clone(),
        "temperature": 0.7,
    }
    return Behaviour(**{**record, **changed})


# temperature


@pytest.mark.oracle("9.1")
@pytest.mark.parametrize("tau", [0.6, 1.0, 1.3])
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6))
def test_ratio_is_one_right_after_sampling_at_every_temperature(tau, seed):
    drawn = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 3, 11, generator=drawn)
    probabilities = (logits / tau).softmax(-1)
    targets = torch.multinomial(probabilities.flatten(0, 1), 1, generator=drawn).view(2, 3)
    recorded = (logits / tau).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    mask = torch.ones(2, 3, dtype=torch.bool)
    for level in Level:
        ratio = Ratio(level=level, regulariser=Unregularised())
        right = weights_BT(target_logprobs_BT(logits, targets, mask, tau) - recorded, mask, ratio)
        assert torch.allclose(right.values_BT, torch.ones(2, 3), rtol=0, atol=1e-5)
        wrong = weights_BT(target_logprobs_BT(logits, targets, mask, 1.0) - recorded, mask, ratio)
        assert (tau == 1.0) == torch.allclose(wrong.values_BT, torch.ones(2, 3), rtol=0, atol=1e-3)


def test_another_temperature_is_refused():
    require_same_distribution(behaviour(), 0.7)
    with pytest.raises(GuardError, match=r"sampled at temperature 0\.7 .* scored at 1\.0: score it at"):
        require_same_distribution(behaviour(), 1.0)
    with pytest.raises(GuardError, match="no importance ratio: set sampling"):
        require_same_distribution(behaviour(temperature=0.0), 0.0)


# support


def head(logprobs_K, masked=0.0):
    logprobs = torch.tensor(logprobs_K).log().expand(2, 3, len(logprobs_K)).clone()
    logprobs[1, 2] = masked
    return TopHead(torch.arange(len(logprobs_K)).expand(logprobs.shape), logprobs)


@pytest.mark.parametrize("filtered", [{"top_p": 0.9}, {"top_k": 2}])
def test_a_filter_is_refused_unless_its_whole_support_is_on_record(filtered):
    whole = head([0.5, 0.5, 0.0])
    for record, on_support in [({}, True), ({"head": whole}, False)]:
        with pytest.raises(GuardError, match="not scored on that support: record the support as the head"):
            require_same_distribution(behaviour(**filtered, **record), 0.7, on_support)
    with pytest.raises(GuardError, match="only a part of the support: record a larger head"):
        require_same_distribution(behaviour(**filtered, head=head([0.5, 0.45])), 0.7, on_support=True)
    require_same_distribution(behaviour(**filtered, head=whole), 0.7, on_support=True)
    masked = head([0.5, 0.5, 0.0], float("nan"))
    require_same_distribution(behaviour(**filtered, head=masked), 0.7, on_support=True)


def test_a_head_that_is_only_a_record_needs_no_mass():
    require_same_distribution(behaviour(head=head([0.5, 0.1])), 0.7)


@pytest.mark.oracle("9.1")
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_ratio_is_one_on_a_replayed_support_and_the_kept_mass_without(seed, top_k):
    drawn = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 4, 9, dtype=torch.float64, generator=drawn)
    kept = logits.topk(top_k, -1)
    # Fillers as a padded record may hold: one repeats a token of the support, one is outside of it.
    ids = torch.cat([kept.indices, kept.indices[..., :1], logits.argmin(-1, keepdim=True)], -1)[0]
    logprobs = torch.cat([kept.values.log_softmax(-1), torch.full((1, 4, 2), -torch.inf)], -1)[0]
    targets, recorded = ids[:, 0][None], logprobs[:, 0][None]
    mask = torch.ones(1, 4, dtype=torch.bool)

    def replayed(logits_NV, places_N):
        return (
            picked_logprob_N(
                on_support_NV(logits_NV, ids[places_N], logprobs[places_N]), targets[0][places_N]
            ),
        )

    (found,) = at_positions(replayed, logits.requires_grad_(), mask)
    assert torch.allclose(found, recorded, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert gradient.isfinite().all()
    outside = torch.ones_like(logits, dtype=torch.bool).scatter(-1, kept.indices, False)
    assert not gradient[outside].any()
    mass = logits.softmax(-1).gather(-1, kept.indices).sum(-1)
    assert torch.allclose(
        target_logprobs_BT(logits, targets, mask) - recorded, mass.log(), rtol=0, atol=1e-12
    )


# versions


def test_a_stale_batch_needs_log_probs_of_this_very_step():
    now = Recomputed(logprobs_BT=-2 * torch.ones(2, 3), version=4, temperature=0.7)
    assert require_recomputed(behaviour(), now, 4) is now.logprobs_BT
    with pytest.raises(GuardError, match="tokens of version 3 and the policy is at 4: recompute"):
        require_recomputed(behaviour(), None, 4)
    with pytest.raises(GuardError, match="recomputed at version 4 and the policy is at 5: recompute them"):
        require_recomputed(behaviour(), now, 5)
    with pytest.raises(GuardError, match=r"recomputed at temperature 1\.0 and sampled at 0\.7"):
        require_recomputed(
            behaviour(), Recomputed(logprobs_BT=now.logprobs_BT, version=4, temperature=1.0), 4
        )


def test_a_fresh_batch_is_its_own_proximal_policy():
    fresh = torch.full((2, 3), 4).where(MASK.bool(), 0)  # what is masked has no version
    record = behaviour(weight_version_BT=fresh, scored_version_BT=fresh)
    assert require_recomputed(record, None, 4) is record.logprobs_BT


def test_rescored_log_probs_are_refused():
    scored = VERSIONS.clone()
    scored[0, 1] = 4  # drawn by 3
    with pytest.raises(GuardError, match="1 tokens carry log-probs of other weights than drew them"):
        require_recomputed(behaviour(scored_version_BT=scored), None, 4)
    scored = VERSIONS.clone()
    scored[1, 2] = 9  # masked
    now = Recomputed(logprobs_BT=torch.zeros(2, 3), version=4, temperature=0.7)
    require_recomputed(behaviour(scored_version_BT=scored), now, 4)


def test_tokens_of_versions_to_come_are_refused():
    now = Recomputed(logprobs_BT=torch.zeros(2, 3), version=3, temperature=0.7)
    with pytest.raises(GuardError, match="drawn by version 4, newer than the policy's 3"):
        require_recomputed(behaviour(), now, 3)
    with pytest.raises(GuardError, match="drawn by version 4, newer than the policy's 3"):
        fresh_groups_P([[[3, 4]]], 3, 2)


# staleness


@pytest.mark.oracle("9.8")
@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3), max_size=4
    ),
    st.integers(0, 4),
)
def test_staleness_filter_returns_only_allowed_versions_in_whole_groups(versions, max_staleness):
    fresh = fresh_groups_P(versions, 9, max_staleness)
    assert len(fresh) == len(versions)
    for group, kept in zip(versions, fresh, strict=True):
        assert kept == all(9 - version <= max_staleness for sample in group for version in sample)


def test_the_oldest_token_of_any_sample_decides():
    groups = [[[5, 5], [5, 3]], [[4, 5], [5]], [[5], [5]]]
    assert fresh_groups_P(groups, 5, 1) == [False, True, True]
    assert fresh_groups_P(groups, 5, 0) == [False, False, True]
    assert fresh_groups_P(groups, 5, 2) == [True, True, True]


def test_a_group_without_tokens_has_no_age():
    with pytest.raises(GuardError, match="no weight version: drop the prompt"):
        fresh_groups_P([[[1]], [[], []]], 1, 1)
