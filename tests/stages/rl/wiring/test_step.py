"""What a recipe chooses is what a step does: critic, updates, replay, what samples it and how often."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tables import (
    COMPLETIONS,
    POLICY_VV,
    PROMPTS,
    REWARDS,
    SAMPLER_VV,
    SAMPLES,
    SAMPLING,
    TAU,
    TOKENS,
    TableEngine,
    TableReference,
    TableTrainer,
    by_hand,
    judged,
    require_same,
    steps,
    target_logprobs_BT,
)

from stages.estimators.params import (
    Cispo,
    DynamicSampling,
    Gae,
    Gspo,
    Head,
    PolicyGradient,
    PpoClip,
    Rloo,
    SequenceMean,
    TokenMean,
)
from stages.rl import collect as collecting
from stages.rl.collect import Collected, collect
from stages.rl.elites import Elites, ReplayElite
from stages.rl.experience import experience, scored
from stages.rl.policy_term import PolicyTerm
from stages.rl.sampler import Sampler
from stages.rl.stage import train_step
from stages.rl.worth import worth

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
