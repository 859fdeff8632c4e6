"""What a recipe chooses reaches the run: estimators, critic, stale sampler, rounds, length, guesses."""

import json

import pytest
import torch
from safetensors.torch import load_file

from data_contracts.dataset import read
from data_contracts.registry import contract
from stages.domains.prompt_table import read_prompts
from stages.domains.protocol import Split
from stages.engines.params import Sampling
from stages.errors import GuardError
from stages.estimators.params import (
    Cispo,
    DrGrpo,
    DynamicSampling,
    FixedLength,
    FullVocabulary,
    Gae,
    Grpo,
    Gspo,
    Head,
    KlPenalty,
    Overlong,
    PolicyGradient,
    Ratio,
    ReinforcePlusPlus,
    ReinforcePlusPlusBaseline,
    Rloo,
    SequenceMean,
    SignBalance,
    Truncate,
)
from stages.rl.stage import run

TRUNCATED = PolicyGradient(ratio=Ratio(regulariser=Truncate(high=1.05)))
CHOICES = {
    "dr_grpo": {"advantage": DrGrpo(), "aggregation": FixedLength(length=8)},
    "rloo": {"advantage": Rloo(), "loss": PolicyGradient()},
    "reinforce_pp": {"advantage": ReinforcePlusPlus()},
    "reinforce_pp_baseline": {"advantage": ReinforcePlusPlusBaseline()},
    "signbalance": {"advantage": SignBalance(rho_max=2.0), "aggregation": SequenceMean()},
    "gae": {"advantage": Gae(), "updates_per_batch": 2},
    "gspo": {"loss": Gspo(), "aggregation": SequenceMean(), "updates_per_batch": 2},
    "cispo": {"loss": Cispo(), "centering": Head(k=16), "advantage": DrGrpo()},
    "centred": {
        "loss": TRUNCATED,
        "centering": FullVocabulary(),
        "sampler_lag": 2,
        "advantage": Rloo(),
    },
    "penalty": {"kl": KlPenalty(coefficient=0.5)},
}


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_trains_and_tells_its_numbers(trained, rl_params, base, name):
    attempt, _ = trained(name, rl_params(steps=3, **CHOICES[name]))
    assert not attempt.has_weights_of(base)
    told = attempt.metrics()
    assert all((row["logprob_gap"] or 0.0) < 1e-5 for row in told)
    expected = {
        "centred": {"drift", "sampler_gap"},
        "penalty": {"reference_kl"},
        "signbalance": {"clamped", "all_correct", "all_wrong", "largest_ratio"},
        "gae": {"value_loss"},
        "cispo": {"head_mass", "floored"},
    }.get(name, set())
    assert all(expected | {"loss", "ess", "chi2", "truncated_ratios"} <= set(row) for row in told)


def test_choices_differ_in_what_they_train(trained, rl_params):
    """The same samples at the first step; the weights after it differ between any two."""
    weights = {}
    for name in ("dr_grpo", "reinforce_pp", "signbalance", "penalty"):
        attempt, _ = trained(name, rl_params(steps=2, **CHOICES[name]))
        weights[name] = load_file(attempt.out("checkpoint") / "model.safetensors")["model.norm.weight"]
    names = list(weights)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            assert not torch.equal(weights[name], weights[other]), (name, other)


def test_a_stale_sampler_says_so_in_every_token_and_metric(trained, rl_params):
    params = rl_params(steps=5, **CHOICES["centred"])
    attempt, _ = trained("stale", params)
    for row in read(attempt.out("rollouts"), "rollouts/1").to_pylist():
        assert set(row["weight_version"]) == {max(0, row["step"] - 2)}
    told = attempt.metrics()
    assert [row["staleness"] for row in told] == [0, 1, 2, 2, 2]
    assert told[0]["k3"] == pytest.approx(0, abs=1e-9) and told[-1]["k3"] > 1e-4
    assert told[-1]["truncated_ratios"] > 0


@pytest.mark.oracle("9.11")
@pytest.mark.parametrize("name", ["centred", "gae", "cispo"])
def test_stopped_at_every_step_equals_undisturbed(world, base, archived, trained, rl_params, tmp_path, name):
    """Old weights, the critic with its moments and the round counter come back."""
    changes = {"dynamic_sampling": DynamicSampling(max_rounds=2)} if name != "gae" else {}
    undisturbed, _ = trained(name, rl_params(steps=4, **CHOICES[name], **changes))
    stopped = world.attempt(
        tmp_path / "stopped", undisturbed.params, policy=base, archive=archived.out("archive")
    )
    assert stopped.stopped_at_each_step(run) == 3
    assert stopped.has_weights_of(undisturbed.out("checkpoint"))
    assert stopped.metrics() == undisturbed.metrics()
    audits = [a.out("audit") / "answer_classes.json" for a in (stopped, undisturbed)]
    assert audits[0].read_bytes() == audits[1].read_bytes()


def test_the_critic_is_saved_with_the_step_and_never_exported(world, base, archived, rl_params, tmp_path):
    params = rl_params(steps=2, **CHOICES["gae"])
    attempt = world.attempt(tmp_path / "critic", params, policy=base, archive=archived.out("archive"))
    assert attempt.stopped_at_each_step(run) == 1
    _, saved = attempt.context().latest_step()
    assert load_file(saved / "value_head.safetensors")["weight"].abs().max() > 0
    exported = load_file(attempt.out("checkpoint") / "model.safetensors")
    assert exported.keys() == load_file(base / "model.safetensors").keys()


def test_a_recorded_head_is_kept_with_the_rollouts(trained, rl_params):
    attempt, _ = trained("head", rl_params(steps=2, **CHOICES["cispo"]))
    table = read(attempt.out("rollouts"), "rollouts/1")
    assert contract("rollouts/1").check(table) == []
    assert set(table.column("head_size").to_pylist()) == {16}


# dynamic sampling


@pytest.fixture
def flat_and_varied(world, write_archive):
    """Prompts of which most can teach nothing."""
    prompts = world.rules("flat-and-varied", "", "everything", "nothing", "", "everything", "nothing")
    rows = read_prompts(prompts, Split.TRAIN)
    archive = write_archive("for-flat-and-varied", [(rows[0], rows[0].prompt.payload["value"])])
    return {"prompts": prompts, "archive": archive}


def test_rounds_go_on_until_enough_groups_vary_and_groups_stay_whole(trained, rl_params, flat_and_varied):
    params = rl_params(
        coefficient=0.0,
        steps=3,
        prompts_per_step=2,
        dynamic_sampling=DynamicSampling(max_rounds=3),
        sampling=Sampling(max_new_tokens=64),
    )
    attempt, notices = trained("rounds", params, **flat_and_varied)
    told = attempt.metrics()
    assert max(row["rounds"] for row in told) > 1
    table = read(attempt.out("rollouts"), "rollouts/1")
    assert contract("rollouts/1").check(table) == []
    short = 0
    for row in told:
        groups: dict[str, list] = {}
        for sample in table.to_pylist():
            if sample["step"] == row["step"] - 1:
                groups.setdefault(sample["group_id"], [])
                if sample["reward"] is not None:
                    groups[sample["group_id"]].append(sample["reward"])
        assert len(groups) == 2 * row["rounds"]
        varied = sum(len(set(rewards)) > 1 for rewards in groups.values())
        assert row["zero_variance"] == pytest.approx(1 - varied / len(groups))
        assert varied >= 2 or row["rounds"] == 3
        short += varied < 2
    told_short = [n for n in notices if "fewer than 2 groups with reward variance after 3 rounds" in n]
    assert bool(told_short) == bool(short)


def test_a_run_that_found_nothing_counts_its_short_steps(trained, rl_params, world, write_archive):
    prompts = world.rules("nothing-varies", "everything", "nothing")
    archive = write_archive("for-nothing-varies", [(read_prompts(prompts, Split.TRAIN)[0], "mo")])
    params = rl_params(
        coefficient=0.0,
        steps=2,
        prompts_per_step=2,
        dynamic_sampling=DynamicSampling(max_rounds=2),
        sampling=Sampling(max_new_tokens=64),
    )
    attempt, notices = trained("nothing", params, prompts=prompts, archive=archive)
    assert [row["rounds"] for row in attempt.metrics()] == [2, 2]
    assert any(n.startswith("2 steps had fewer than 2 groups with reward variance") for n in notices)


# length, guesses


def test_overlong_completions_cost_reward_in_the_advantage_only(trained, rl_params):
    """The pass rate stays the verifier's; groups of one verdict get variance from their lengths."""
    plain, _ = trained("plain", rl_params(steps=1, coefficient=0.0))
    shaped, _ = trained("shaped", rl_params(steps=1, coefficient=0.0, overlong=Overlong(cache=6)))
    one, other = plain.metrics()[0], shaped.metrics()[0]
    assert one["pass_rate"] == other["pass_rate"] and one["zero_variance"] == other["zero_variance"]
    assert not shaped.has_weights_of(plain.out("checkpoint"))


def bounded(world, name, answer_class):
    rows = read(world.prompts, "prompts/1").to_pylist()
    return world.write_prompts(name, [{**row, "answer_class": answer_class} for row in rows])


@pytest.mark.parametrize("answer_class", ["yes_no:2", "options:200"])
def test_vanilla_grpo_on_bounded_answers_is_refused_before_anything_is_sampled(
    world, trained, rl_params, tmp_path, answer_class
):
    prompts = bounded(world, f"bounded-{answer_class.replace(':', '-')}", answer_class)
    with pytest.raises(GuardError, match=rf"100% of the prompts can be answered by guessing: {answer_class}"):
        trained("refused", rl_params(), prompts=prompts)
    assert not (tmp_path / "refused" / "out").exists()
    if answer_class == "yes_no:2":
        for name, advantage in (("ack", Grpo(acknowledge_guessing=True)), ("rloo", Rloo())):
            attempt, _ = trained(name, rl_params(steps=1, advantage=advantage), prompts=prompts)
            (found,) = json.loads((attempt.out("audit") / "answer_classes.json").read_text())
            assert (found["answer_class"], found["guess_rate"]) == ("yes_no:2", 0.5)


def test_a_class_with_many_answers_is_open_enough(world, trained, rl_params):
    prompts = bounded(world, "many", "integer:201")
    attempt, _ = trained("many", rl_params(steps=1), prompts=prompts)
    (found,) = json.loads((attempt.out("audit") / "answer_classes.json").read_text())
    assert found["guess_rate"] == 1 / 201
    assert found["prompts"] == 12 and 0 < found["reward_mean"] < 1


def test_a_constant_answer_that_solves_many_prompts_is_told(world, trained, rl_params, write_archive):
    prompts = world.rules("constant", "everything", "everything", "", "", "")
    rows = read_prompts(prompts, Split.TRAIN)
    archive = write_archive("for-constant", [(rows[0], "mo")])
    params = rl_params(steps=1, coefficient=0.0, prompts_per_step=5, sampling=Sampling(max_new_tokens=64))
    attempt, notices = trained("constant", params, prompts=prompts, archive=archive)
    assert any("solves" in n and "reward can rise without reading them" in n for n in notices)
    (found,) = json.loads((attempt.out("audit") / "answer_classes.json").read_text())
    assert found["constant_accuracy"] >= 2 / 5
