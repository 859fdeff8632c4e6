"""Several updates on one batch in the genuine stage: they are taken, and the later ones are clipped."""

import json

import pytest

from stages.estimators.params import Gspo, KlPenalty, PolicyGradient, PpoClip, SequenceMean
from stages.rl import policy
from stages.rl.policy import open_policy


@pytest.mark.parametrize(
    "choices",
    [
        {"loss": PpoClip(clip_low=0.02, clip_high=0.02)},
        {"loss": Gspo(clip_low=3e-3, clip_high=4e-3), "aggregation": SequenceMean()},
    ],
    ids=["ppo", "gspo"],
)
def test_a_run_takes_its_updates_and_clips_the_second(trained, rl_params, choices):
    once, _ = trained("once", rl_params(coefficient=0.0, steps=2, **choices))
    twice, _ = trained("twice", rl_params(coefficient=0.0, steps=2, updates_per_batch=2, **choices))
    assert [row["clip_fraction"] for row in once.metrics()] == [0.0, 0.0]
    assert all(row["clip_fraction"] > 0 for row in twice.metrics())
    assert all(row["logprob_gap"] < 1e-5 for row in twice.metrics())


@pytest.mark.parametrize("updates", [1, 3])
def test_the_trainers_schedule_counts_updates(trained, rl_params, updates):
    attempt, _ = trained("saved", rl_params(steps=2, updates_per_batch=updates), {"save_every_s": 1e-6})
    step, saved = attempt.context().latest_step()
    assert json.loads((saved / "trainer.json").read_text())["steps"] == step * updates > 0


def test_what_opens_the_policy_reads_the_recipe(world, base, rl_params, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(policy, "open_trainer", lambda *given: asked.append(given))
    changes = {"steps": 5, "updates_per_batch": 3, "advantage": {"kind": "gae", "learning_rate": 0.07}}
    for params in (rl_params(kl=KlPenalty(coefficient=0.1), **changes), rl_params(steps=5)):
        opened = open_policy(world.attempt(tmp_path, params, policy=base).context())
        folder, optimizer, updates, _, critic = asked[-1]
        assert folder == base and optimizer == params.optimizer
        assert updates == params.steps * params.updates_per_batch
        assert (critic.learning_rate if critic else None) == getattr(params.advantage, "learning_rate", None)
        assert (opened.reference is not None) == (params.kl is not None)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_runs_samples_are_as_old_as_the_recipe_says(trained, rl_params, lag):
    params = rl_params(steps=4, loss=PolicyGradient(), sampler_lag=lag)
    attempt, _ = trained("lagging", params)
    assert [row["staleness"] for row in attempt.metrics()] == [min(step, lag) for step in range(4)]


def test_a_run_with_a_penalty_has_a_reference(trained, rl_params):
    attempt, _ = trained("penalised", rl_params(steps=2, kl=KlPenalty(coefficient=0.1)))
    assert attempt.metrics()[0]["reference_kl"] == pytest.approx(0, abs=1e-6)
    assert attempt.metrics()[1]["reference_kl"] != pytest.approx(0, abs=1e-6)
