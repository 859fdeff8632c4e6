"""What a recipe chooses is what the loss does: each choice against its formula written out, on tables.

Policy, sampler and reference are tables of logits by the token before, all at temperature 1.3: whatever
forgets the temperature, or takes it from elsewhere, is off by far more than the tolerance.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from data_contracts.values import StopReason
from stages.domains.pool import Judgement
from stages.domains.protocol import Unscorable, Verdict
from stages.engines.params import Sampling
from stages.engines.protocol import Forward, Rollout, Scores
from stages.errors import GuardError
from stages.estimators.distribution import FromLogits
from stages.estimators.params import (
    Cispo,
    Clip,
    DrGrpo,
    DynamicSampling,
    FixedLength,
    FullVocabulary,
    Gae,
    Grpo,
    Gspo,
    Head,
    KlPenalty,
    Level,
    Mask,
    PolicyGradient,
    PpoClip,
    Ratio,
    Rloo,
    SequenceMean,
    TokenMean,
    Truncate,
    Uncorrected,
)
from stages.rl import collect as collecting
from stages.rl.collect import Collected, collect
from stages.rl.elites import Elites, ReplayElite
from stages.rl.experience import experience, scored
from stages.rl.policy_term import PolicyTerm
from stages.rl.sampler import Sampler
from stages.rl.stage import train_step
from stages.rl.worth import worth
from stages.sampling.judged import Judged

TAU = 1.3
SAMPLING = Sampling(max_new_tokens=8, temperature=TAU)
PROMPTS = [[1, 2], [3], [2, 2, 1]]
COMPLETIONS = [
    [[4, 5, 6], [5], [6, 4], [3, 3]],
    [[4, 4], [3, 5, 6, 6], [6], [5, 4, 3]],
    [[3, 6], [4], [5, 5, 5], [6, 3]],
]
REWARDS = [[1, 0, 0, None], [1, 1, 0, 1], [1, 1, 1, 1]]
TOKENS = 6 + 10 + 8  # of samples with a verdict
SAMPLES = 11
ADVANTAGES = {
    "grpo": [[2**0.5, -(0.5**0.5), -(0.5**0.5)], [3**-0.5, 3**-0.5, -(3**0.5), 3**-0.5]],
    "dr_grpo": [[2 / 3, -1 / 3, -1 / 3], [0.25, 0.25, -0.75, 0.25]],
    "rloo": [[1, -0.5, -0.5], [1 / 3, 1 / 3, -1, 1 / 3]],
}


def table_VV(seed):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(8, 8, dtype=torch.float64, generator=drawn)


SAMPLER_VV, PROXIMAL_VV, REFERENCE_VV, POLICY_VV = (table_VV(seed) for seed in (1, 2, 3, 4))
PROXIMAL_VV = SAMPLER_VV + 0.2 * PROXIMAL_VV
POLICY_VV = PROXIMAL_VV + 0.3 * POLICY_VV


def logprobs_V(logits_VV, before):
    return (logits_VV[before] / TAU).log_softmax(-1)


def steps(prompt, completion):
    """(token before, token) of every sampled token."""
    return list(zip([prompt[-1], *completion], completion, strict=False))


def judged(head=0, version=0):
    def rollout(place, completion):
        rows = [logprobs_V(SAMPLER_VV, before) for before, _ in steps(PROMPTS[place], completion)]
        top = [row.topk(head) for row in rows] if head else []
        return Rollout(
            place,
            completion,
            [float(row[token]) for row, token in zip(rows, completion, strict=True)],
            StopReason.EOS,
            version,
            version,
            SAMPLING,
            [t.indices.tolist() for t in top] or None,
            [t.values.tolist() for t in top] or None,
        )

    return [
        [
            Judged(
                SimpleNamespace(prompt=SimpleNamespace(id=str(place))),
                PROMPTS[place],
                sample,
                rollout(place, completion),
                "",
                Judgement(
                    Verdict(unscorable=Unscorable.WALL_CLOCK) if reward is None else Verdict(reward=reward),
                    None,
                ),
            )
            for sample, (completion, reward) in enumerate(zip(group, REWARDS[place], strict=True))
        ]
        for place, group in enumerate(COMPLETIONS)
    ]


class TableEngine:
    def __init__(self, logits_VV=SAMPLER_VV):
        self.logits_VV = logits_VV
        self.loaded = None

    def distribution(self, batch, temperature):
        return FromLogits(self.logits_VV[batch.input_BT], temperature)

    def load_weights(self, tensors, version):
        self.loaded = (tensors, version)


class TableTrainer:
    """Plain gradient descent on the table, two rows a micro-batch; values are by the token before."""

    def __init__(self, logits_VV, values_V=None, rate=4.0):
        self.logits_VV = logits_VV.clone().requires_grad_()
        self.values_V = values_V
        self.rate = rate
        self.steps = 0
        self.scores = 0

    def forward(self, batch):
        values_BT = None if self.values_V is None else self.values_V[batch.input_BT]
        return Forward(self.logits_VV[batch.input_BT], values_BT)

    def step(self, terms):
        gradient = self.gradient(terms)
        with torch.no_grad():
            self.logits_VV -= self.rate * gradient
        self.steps += 1
        return float(gradient.norm())

    def gradient(self, terms):
        self.logits_VV.grad = None
        for batch, loss in terms:
            for micro in batch.micro_batches(2):
                loss(self.forward(micro), micro).backward()
        return self.logits_VV.grad

    @torch.no_grad()
    def score(self, batch, temperature):
        self.scores += 1
        return Scores(target_logprobs_BT(self.logits_VV, batch, temperature), self.forward(batch).values_BT)


def target_logprobs_BT(logits_VV, batch, temperature):
    logprobs = (logits_VV.detach()[batch.input_BT] / temperature).log_softmax(-1)
    picked_BT = logprobs.gather(-1, batch.target_BT.unsqueeze(-1)).squeeze(-1)
    return picked_BT.where(batch.mask_BT, 0.0)


class TableReference:
    def target_logprobs_BT(self, batch, temperature):
        return target_logprobs_BT(REFERENCE_VV, batch, temperature)


@pytest.fixture
def recipe(rl_params):
    return lambda **changes: rl_params(**{"coefficient": 0.0, "sampling": SAMPLING, **changes})


def term_of(params, first_update=True, proximal_VV=None, version=3):
    """As the stage makes it, of samples three steps old."""
    groups = judged(params.centering.k if isinstance(params.centering, Head) else 0)
    taken = experience(groups, worth(groups, params), params, pad_id=0)
    policy = SimpleNamespace(
        trainer=TableTrainer(POLICY_VV), reference=TableReference() if params.kl else None
    )
    taken = scored(taken, policy, params, version=version)
    if proximal_VV is not None:
        taken = replace(taken, proximal_BT=target_logprobs_BT(proximal_VV, taken.batch, TAU))
    return PolicyTerm(taken, params, TableEngine(), version, first_update)


def by_hand(params, token_loss, every_group=False, logits_VV=POLICY_VV, length=None):
    """Gradient of the aggregated losses; `token_loss(row, t, advantage)` of one token of one sample."""
    logits_VV = logits_VV.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for place, group in enumerate(COMPLETIONS if every_group else COMPLETIONS[:2]):
        kept = [c for c, reward in zip(group, REWARDS[place], strict=True) if reward is not None]
        advantages = [0.0] * 4 if place == 2 else ADVANTAGES[params.advantage.kind]
        for sample, completion in enumerate(kept):
            advantage = 0.0 if place == 2 else advantages[place][sample]
            row = [
                SimpleNamespace(
                    token=token,
                    p=logprobs_V(logits_VV, before),
                    q=logprobs_V(SAMPLER_VV, before),
                    old=logprobs_V(PROXIMAL_VV, before),
                    ref=logprobs_V(REFERENCE_VV, before),
                )
                for before, token in steps(PROMPTS[place], completion)
            ]
            losses = torch.stack([token_loss(row, at, advantage) for at in range(len(row))])
            total = (
                total
                + {
                    "token_mean": losses.sum() / TOKENS,
                    "sequence_mean": losses.mean() / SAMPLES,
                    "fixed_length": losses.sum() / (SAMPLES * (length or 1)),
                }[params.aggregation.kind]
            )
    total.backward()
    return logits_VV.grad, float(total.detach())


def ratio_of(at, top="p", bottom="q"):
    """A token's ratio, detached."""
    return float((getattr(at, top)[at.token] - getattr(at, bottom)[at.token]).exp().detach())


def product(row, power=1.0, top="p", bottom="q"):
    value = 1.0
    for at in row:
        value *= ratio_of(at, top, bottom)
    return value**power


def truncated(r):
    return min(r, 1.1)


def masked(r):
    return r if 0.9 <= r <= 1.15 else 0.0


def clipped(r):
    return min(max(r, 0.95), 1.05)


TOKEN_WEIGHTS = {
    "exact": ({"loss": PolicyGradient()}, lambda r: r),
    "uncorrected": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Uncorrected()))}, lambda r: 1.0),
    "truncated": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Truncate(high=1.1)))}, truncated),
    "masked": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Mask(low=0.9, high=1.15)))}, masked),
    "clipped": ({"loss": PolicyGradient(ratio=Ratio(regulariser=Clip(low=0.95, high=1.05)))}, clipped),
    "cispo": ({"loss": Cispo(clip_low=0.1, clip_high=0.2)}, lambda r: min(max(r, 0.9), 1.2)),
    "cispo, no lower clip": ({"loss": Cispo(clip_high=0.1)}, truncated),
}
AGGREGATIONS = {
    "token_mean": TokenMean(),
    "sequence_mean": SequenceMean(),
    "fixed_length": FixedLength(length=5),
}


def require_same(found, expected, atol=2e-7):
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def gradient(term, dtype=torch.float64):
    trainer = TableTrainer(POLICY_VV.to(dtype))
    return trainer.gradient([(term.batch, term.loss)])


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


# the critic


def gae_recipe(recipe, **changes):
    return recipe(advantage=Gae(discount=0.9, trace=0.7), loss=PpoClip(), **changes)


def test_a_critics_advantages_have_their_own_discount_and_trace(recipe):
    """advantage_t = sum_l (discount trace)^l (reward + discount next value - value)."""
    values_V = torch.linspace(-0.5, 0.9, 8)
    params = gae_recipe(recipe)
    groups = judged()
    taken = experience(groups, worth(groups, params), params, pad_id=0)
    policy = SimpleNamespace(trainer=TableTrainer(POLICY_VV, values_V), reference=None)
    taken = scored(taken, policy, params, version=0)
    row = 0
    for place, group in enumerate(COMPLETIONS):
        for completion, reward in zip(group, REWARDS[place], strict=True):
            if reward is None:
                continue
            values = [float(values_V[before]) for before, _ in steps(PROMPTS[place], completion)]
            last = len(values) - 1
            deltas = [
                (reward if t == last else 0.0) + 0.9 * (values[t + 1] if t < last else 0.0) - values[t]
                for t in range(last + 1)
            ]
            expected = [
                sum((0.9 * 0.7) ** (later - t) * deltas[later] for later in range(t, last + 1))
                for t in range(last + 1)
            ]
            mask_T = taken.batch.mask_BT[row]
            assert taken.advantages_BT[row][mask_T].tolist() == pytest.approx(expected, abs=1e-6)
            returns = [a + v for a, v in zip(expected, values, strict=True)]
            assert taken.returns_BT[row][mask_T].tolist() == pytest.approx(returns, abs=1e-6)
            row += 1
    assert row == SAMPLES == len(taken.batch.rows_B)
    proximal_BT = target_logprobs_BT(POLICY_VV, taken.batch, TAU).float()
    torch.testing.assert_close(taken.proximal_BT.float(), proximal_BT)


def test_the_critics_loss_is_half_the_squared_error_and_leaves_the_policy_alone(recipe):
    params = gae_recipe(recipe, aggregation=SequenceMean())
    values_V = torch.linspace(-0.5, 0.9, 8).double().requires_grad_()
    groups = judged()
    taken = experience(groups, worth(groups, params), params, pad_id=0)
    trainer = TableTrainer(POLICY_VV, values_V)
    taken = scored(taken, SimpleNamespace(trainer=trainer, reference=None), params, version=0)
    term = PolicyTerm(taken, params, TableEngine(), 0, first_update=True)
    own = trainer.gradient([(term.batch, term.loss)]).clone()
    error = (values_V[taken.batch.input_BT] - taken.returns_BT)[taken.batch.mask_BT]
    (expected,) = torch.autograd.grad(error.square().sum() / 2 / TOKENS, values_V)
    require_same(values_V.grad, expected)  # a mean over tokens, whatever the policy's aggregation
    assert term.metrics()["value_loss"] == pytest.approx(float(error.square().sum().detach()) / 2 / TOKENS)
    alone = PolicyTerm(replace(taken, returns_BT=None), params, TableEngine(), 0, first_update=True)
    assert torch.equal(own, trainer.gradient([(alone.batch, alone.loss)]))
    assert term.metrics()["loss"] == alone.metrics()["loss"]


# the step


def one_step(params, trainer, elites=(), step=0):
    policy = SimpleNamespace(
        trainer=trainer,
        engine=TableEngine(),
        tokenizer=SimpleNamespace(pad_token_id=0),
        reference=TableReference() if params.kl else None,
    )
    ctx = SimpleNamespace(params=params, seed=lambda *_: 0)
    by_prompt = {}
    for elite in elites:
        by_prompt.setdefault(elite.prompt_id, []).append(elite)
    groups = judged(version=step)
    sampled = [*groups, groups[2]]  # one that was not taken
    return train_step(ctx, policy, Collected(sampled, groups, 1), Elites(by_prompt), step)


@pytest.mark.parametrize("updates", [1, 2, 3])
@pytest.mark.parametrize("loss", [PpoClip(clip_low=0.05, clip_high=0.1), Gspo(clip_low=0.05, clip_high=0.1)])
def test_a_step_takes_its_updates_and_clips_the_later_ones(recipe, loss, updates):
    aggregation = SequenceMean() if isinstance(loss, Gspo) else TokenMean()
    params = recipe(loss=loss, aggregation=aggregation, updates_per_batch=updates)
    trainer = TableTrainer(SAMPLER_VV)
    trained = one_step(params, trainer)
    assert trainer.steps == updates and trainer.scores == int(updates > 1)
    assert trained.metrics["logprob_gap"] < 1e-6  # of the first update, whatever came after
    assert (trained.metrics["clip_fraction"] > 0) == (updates > 1)

    expected_VV = SAMPLER_VV.clone()
    for _ in range(updates):

        def token_loss(row, t, a):
            logs = [at.p[at.token] - at.q[at.token] for at in row]  # the sampler is the first policy
            r = (sum(logs) / len(logs) if isinstance(loss, Gspo) else logs[t]).exp()
            return -torch.minimum(r * a, r.clamp(0.95, 1.1) * a)

        expected_VV -= 4.0 * by_hand(params, token_loss, logits_VV=expected_VV)[0]
    torch.testing.assert_close(trainer.logits_VV.detach(), expected_VV, rtol=0, atol=1e-5)


def test_elites_are_replayed_in_every_update_and_with_the_recipes_coefficient(recipe):
    elites = [ReplayElite("9", f"s{answer}", [2], [answer], [-1.0], 1.0) for answer in (4, 5)]
    replay = {"kind": "uniform", "coefficient": 0.5, "elites_per_step": 2}
    params = recipe(replay=replay, loss=PolicyGradient(), updates_per_batch=2)
    with_replay, without = TableTrainer(SAMPLER_VV, rate=0.1), TableTrainer(SAMPLER_VV, rate=0.1)
    told = one_step(params, with_replay, elites).metrics
    assert told["replay_elites"] == 2 and told["replay_nll"] > 0
    one_step(recipe(loss=PolicyGradient(), updates_per_batch=2), without)
    moved = with_replay.logits_VV.detach() - without.logits_VV.detach()
    pull = torch.zeros(8, dtype=torch.float64)
    pull[[4, 5]] = 0.5
    first = 0.5 * 0.1 * (pull - SAMPLER_VV[2].softmax(-1))  # lambda (uniform - pi), twice to first order
    assert torch.allclose(moved[2], 2 * first, rtol=0, atol=0.1 * float(first.abs().max()))
    assert not moved[7].any()


# what is sampled


def test_the_sampler_is_as_many_steps_old_as_the_recipe_says(tmp_path):
    engine = TableEngine()
    sampler = Sampler(engine, 2)
    weights = {"w": torch.zeros(1)}
    for step, oldest in enumerate([0, 0, 0, 1, 2]):
        weights["w"].fill_(step)  # in place, as an optimizer does
        assert sampler.refresh(weights, step) == oldest
        assert engine.loaded[1] == oldest == float(engine.loaded[0]["w"])
    sampler.save(tmp_path)
    again = Sampler(engine, 2)
    again.load(tmp_path)
    assert again.refresh({"w": torch.full((1,), 5.0)}, 5) == 3 == float(engine.loaded[0]["w"])
    assert Sampler(engine, 0).refresh(weights, 7) == 7 == engine.loaded[1]


@pytest.fixture
def asked(monkeypatch):
    """What collect asks of its sampler: rounds of one group that varies and one that does not."""
    calls = []

    def sample_groups(engine, tokenizer, pool, rows, n, sampling, seed, head=0):
        calls.append(SimpleNamespace(rows=rows, n=n, sampling=sampling, seed=seed, head=head))
        return [judged()[1], judged()[2]]

    monkeypatch.setattr(collecting, "sample_groups", sample_groups)
    return calls


@pytest.mark.parametrize(
    ("choice", "wanted", "rounds", "taken"),
    [(None, 2, 1, 2), (DynamicSampling(max_rounds=5), 2, 2, 2), (DynamicSampling(max_rounds=2), 3, 2, 2)],
)
def test_rounds_are_as_the_recipe_says(asked, recipe, choice, wanted, rounds, taken):
    params = recipe(dynamic_sampling=choice, prompts_per_step=wanted, group_size=4)
    ctx = SimpleNamespace(params=params, seed=lambda *parts: hash(parts))
    policy = SimpleNamespace(engine=None, tokenizer=None, rows=list(range(6)))
    found = collect(ctx, policy, None, first_round=7)
    assert (found.rounds, len(asked), len(found.taken)) == (rounds, rounds, taken)
    assert len(found.sampled) == 2 * rounds
    assert all(len(call.rows) == wanted and call.n == 4 and call.sampling == SAMPLING for call in asked)
    assert [call.seed for call in asked] == [hash(("samples", 7 + turn)) for turn in range(rounds)]
    assert all(call.head == 0 for call in asked)
    if choice:
        assert all(group[2].judgement.verdict.reward == 0 for group in found.taken)


@pytest.mark.parametrize("k", [3, 5])
def test_the_head_that_is_recorded_has_the_recipes_size(asked, recipe, k):
    params = recipe(loss=Cispo(), centering=Head(k=k), advantage=Rloo())
    ctx = SimpleNamespace(params=params, seed=lambda *_: 0)
    collect(ctx, SimpleNamespace(engine=None, tokenizer=None, rows=list(range(6))), None, 0)
    assert [call.head for call in asked] == [k]
