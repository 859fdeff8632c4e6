"""What a recipe chooses is what the loss does: each choice against its formula written out, on tables."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tables import (
    AGGREGATIONS,
    COMPLETIONS,
    POLICY_VV,
    PROMPTS,
    PROXIMAL_VV,
    REFERENCE_VV,
    REWARDS,
    SAMPLER_VV,
    TOKEN_WEIGHTS,
    TOKENS,
    TableTrainer,
    by_hand,
    gradient,
    judged,
    logprobs_V,
    product,
    ratio_of,
    require_same,
    steps,
    term_of,
    truncated,
)

from stages.engines.params import Sampling
from stages.errors import GuardError
from stages.estimators.params import (
    DrGrpo,
    FixedLength,
    FullVocabulary,
    Grpo,
    Gspo,
    Head,
    KlPenalty,
    Level,
    PolicyGradient,
    PpoClip,
    Ratio,
    Rloo,
    SequenceMean,
    TokenMean,
    Truncate,
)
from stages.rl.experience import experience, scored
from stages.rl.worth import worth


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", TOKEN_WEIGHTS)
def test_the_weight_of_a_token(recipe, name, aggregation):
    choices, weight = TOKEN_WEIGHTS[name]
    params = recipe(
        **choices,
        acknowledge_prefix_bias=True,
        advantage=Grpo(),
        aggregation=AGGREGATIONS[aggregation],
    )
    term = term_of(params)
    expected, total = by_hand(
        params, lambda row, t, a: -weight(ratio_of(row[t])) * a * row[t].p[row[t].token], length=5
    )
    require_same(gradient(term), expected)
    assert term.metrics()["loss"] == pytest.approx(total, abs=1e-6)
    later = term_of(params, first_update=False, proximal_VV=PROXIMAL_VV)
    require_same(gradient(later), expected)  # the ratio of this very forward in every update


@pytest.mark.parametrize(
    ("ratio", "weight"),
    [
        (Ratio(level=Level.SEQUENCE), product),
        (Ratio(level=Level.GEOMETRIC), lambda row: product(row, 1 / len(row))),
        (Ratio(level=Level.SEQUENCE, regulariser=Truncate(high=1.1)), lambda row: truncated(product(row))),
        (Ratio(veto_below=0.9), None),
    ],
)
def test_the_weight_of_a_row(recipe, ratio, weight):
    params = recipe(loss=PolicyGradient(ratio=ratio), acknowledge_prefix_bias=True, advantage=Rloo())

    def token_loss(row, t, a):
        own = ratio_of(row[t]) * all(ratio_of(at) >= 0.9 for at in row) if weight is None else weight(row)
        return -own * a * row[t].p[row[t].token]

    term = term_of(params)
    require_same(gradient(term), by_hand(params, token_loss)[0])
    if weight is None:
        assert 0 < term.metrics()["vetoed"] < 1


def correction(at, weight, k=None):
    """sum_v q_v f(p_v / q_v) log p_v; beyond the sampler's k likeliest tokens q is rho p."""
    p, q = at.p.detach().exp(), at.q.exp()
    if k is None:
        return sum(float(q[v]) * weight(float(p[v] / q[v])) * at.p[v] for v in range(len(p)))
    head = q.topk(k).indices.tolist()
    rho = float((1 - q[head].sum()) / (1 - p[head].sum()))
    alpha = rho * weight(1 / rho)
    return sum((float(q[v]) * weight(float(p[v] / q[v])) - alpha * float(p[v])) * at.p[v] for v in head)


@pytest.mark.parametrize("k", [None, 2, 3])
@pytest.mark.parametrize("name", ["uncorrected", "truncated", "masked", "clipped", "cispo"])
def test_centering_subtracts_the_mean_weighted_score_of_the_sampler(recipe, name, k):
    choices, weight = TOKEN_WEIGHTS[name]
    advantage, aggregation = (Rloo(), TokenMean()) if k == 3 else (DrGrpo(), FixedLength(length=5))
    centering = Head(k=k) if k else FullVocabulary()
    params = recipe(**choices, centering=centering, advantage=advantage, aggregation=aggregation)

    def token_loss(row, t, a):
        at = row[t]
        return -a * (weight(ratio_of(at)) * at.p[at.token] - correction(at, weight, k))

    term = term_of(params)
    found = gradient(term, torch.float32 if k else torch.float64).double()  # a head is recorded in float32
    require_same(found, by_hand(params, token_loss, length=5)[0], atol=1e-6)
    told = term.metrics()
    rows = [logprobs_V(SAMPLER_VV, b) for b, _ in kept_steps()]
    if k:
        mass = sum(float(row.exp().topk(k).values.sum()) for row in rows) / len(rows)
        assert told["head_mass"] == pytest.approx(mass, abs=1e-6)
    else:
        assert term.require_agreement(1e-5, 1)["sampler_gap"] < 1e-6
        assert term.sampler_agreement.tokens == len(rows)


def kept_steps(groups=(0, 1)):
    """Of the samples that a step trains on: those with a verdict, of groups that vary."""
    return [
        step
        for place in groups
        for completion, reward in zip(COMPLETIONS[place], REWARDS[place], strict=True)
        if reward is not None
        for step in steps(PROMPTS[place], completion)
    ]


@pytest.mark.parametrize("low_high", [(0.05, 10.0), (0.99, 0.1), (0.1, 0.2)])
@pytest.mark.parametrize("correction", [None, Ratio(), Ratio(regulariser=Truncate(high=1.05))])
@pytest.mark.parametrize("kind", [PpoClip, Gspo])
def test_a_later_update_is_clipped_on_each_side(recipe, kind, low_high, correction):
    """-f(old / q) min(r A, clip(r) A) with r = policy / old, of the token or the row's geometric mean."""
    low, high = low_high
    params = recipe(
        loss=kind(clip_low=low, clip_high=high, correction=correction),
        aggregation=SequenceMean() if kind is Gspo else TokenMean(),
        acknowledge_prefix_bias=True,
        updates_per_batch=2,
    )
    outside = []

    def token_loss(row, t, a):
        logs = [at.p[at.token] - at.old[at.token] for at in row]
        r = (sum(logs) / len(logs) if kind is Gspo else logs[t]).exp()
        outside.append((a > 0 and r > 1 + high) or (a < 0 and r < 1 - low))
        own = 1.0 if correction is None else ratio_of(row[t], "old")
        own = min(own, 1.05) if correction and correction.regulariser.kind == "truncate" else own
        return -own * torch.minimum(r * a, r.clamp(1 - low, 1 + high) * a)

    term = term_of(params, first_update=False, proximal_VV=PROXIMAL_VV)
    expected, _ = by_hand(params, token_loss)
    require_same(gradient(term), expected)
    assert term.metrics()["clip_fraction"] == pytest.approx(sum(outside) / len(outside))
    if high < 1 and kind is PpoClip:
        assert sum(outside) > 0


@pytest.mark.parametrize("kind", ["reverse_kl", "forward_kl"])
def test_the_penalty_of_its_kind_and_coefficient_is_about_every_sample(recipe, kind):
    penalty = KlPenalty(kind=kind, coefficient=0.7)
    params = recipe(loss=PpoClip(), kl=penalty)

    def token_loss(row, t, a):
        at = row[t]
        r = at.p[at.token] - at.ref[at.token]
        kl = r.square() / 2 if kind == "reverse_kl" else (-r).exp() - 1 + r
        surrogate = -a * (at.p[at.token] - at.p[at.token].detach()).exp()
        return surrogate + 0.7 * ratio_of(at) * kl

    term = term_of(params)
    require_same(gradient(term), by_hand(params, token_loss, every_group=True)[0])
    told = 0.0
    for before, token in kept_steps(range(3)):
        p, q, ref = (logprobs_V(t, before)[token] for t in (POLICY_VV, SAMPLER_VV, REFERENCE_VV))
        told += float((p - q).exp() * (p - ref))
    assert term.metrics()["reference_kl"] == pytest.approx(told / TOKENS, abs=1e-6)


def test_metrics_are_at_the_temperature_and_of_the_versions(recipe):
    term = term_of(recipe(loss=PolicyGradient()), version=0)
    gradient(term)
    rows = [(logprobs_V(POLICY_VV, b), logprobs_V(SAMPLER_VV, b), v) for b, v in kept_steps()]
    told = term.metrics()
    entropy = -sum(float((p.exp() * p).sum()) for p, _, _ in rows) / len(rows)
    assert told["entropy"] == pytest.approx(entropy, abs=1e-6)
    gap = sum(abs(float(p[v] - q[v])) for p, q, v in rows) / len(rows)
    assert term.agreement.gap == pytest.approx(gap, abs=1e-6) and term.agreement.tokens == len(rows)
    stale = term_of(recipe(loss=PolicyGradient()), version=3)
    moved = term_of(recipe(loss=PolicyGradient()), version=0, first_update=False)
    for other, age in ((stale, 3.0), (moved, 0.0)):  # nothing that the engine would have to agree with
        gradient(other)
        assert other.agreement.tokens == 0 and other.metrics()["staleness"] == age


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scored_version": 1}, "carry log-probs of other weights than drew them"),
        ({"weight_version": 9, "scored_version": 9}, "newer than the policy's 3"),
        ({"sampling": Sampling(max_new_tokens=8)}, "score it at the temperature that sampled"),
    ],
)
def test_a_record_that_the_loss_must_not_use_is_refused(recipe, changes, sentence):
    params = recipe(loss=PolicyGradient())
    lying = [[replace(s, rollout=replace(s.rollout, **changes)) for s in group] for group in judged()]
    taken = experience(lying, worth(lying, params), params, pad_id=0)
    with pytest.raises(GuardError, match=sentence):
        scored(taken, SimpleNamespace(trainer=TableTrainer(POLICY_VV), reference=None), params, version=3)
