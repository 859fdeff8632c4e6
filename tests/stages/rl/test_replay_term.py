"""The replay term in each of its forms: what it is on a table, and which elites it takes."""

import math
from types import SimpleNamespace

import pytest
import torch

from stages.domains.pool import Judgement
from stages.domains.protocol import Verdict
from stages.engines.protocol import Forward
from stages.estimators.params import FloorReplay, JensenShannonReplay, NarrowReplay, UniformReplay
from stages.rl.elites import Elites, ReplayElite
from stages.rl.replay_term import drawn_elites, replay_term
from stages.sampling.judged import Judged

VOCABULARY = 9
ANSWERS = {4: [5, 6, 8], 7: [5, 6]}  # prompt token -> elites


@pytest.fixture
def table_VV():
    drawn = torch.Generator().manual_seed(2)
    return torch.randn(VOCABULARY, VOCABULARY, dtype=torch.float64, generator=drawn).requires_grad_()


def elites(temperature=1.0):
    return [
        ReplayElite(str(prompt), f"s{answer}", [prompt], [answer], [-1.5], temperature)
        for prompt, answers in ANSWERS.items()
        for answer in answers
    ]


def run(table_VV, choice, given):
    """Logits from a table, one token an answer, two elites a micro-batch."""
    term = replay_term(given, choice, 0)
    total = 0.0
    for micro in term.batch.micro_batches(2):
        loss = term.loss(Forward(table_VV[micro.input_BT]), micro)
        loss.backward()
        total += float(loss.detach())
    return term, total


@pytest.mark.oracle("1.4")
def test_gradient_of_replay_on_a_tabular_softmax_is_policy_minus_uniform_over_elites(table_VV):
    coefficient = 0.3
    term, total = run(table_VV, UniformReplay(coefficient=coefficient), elites())
    for prompt, own in ANSWERS.items():
        uniform = torch.zeros(VOCABULARY, dtype=torch.float64)
        uniform[own] = 1 / len(own)
        policy = table_VV[prompt].softmax(-1).detach()
        expected = coefficient * (policy - uniform) / len(ANSWERS)  # the mean over prompts
        torch.testing.assert_close(table_VV.grad[prompt], expected, rtol=0, atol=1e-8)
    untouched = [token for token in range(VOCABULARY) if token not in ANSWERS]
    assert not table_VV.grad[untouched].any()
    logprobs = table_VV.detach().log_softmax(-1)
    nll = sum(-logprobs[p, own].mean() for p, own in ANSWERS.items()) / len(ANSWERS)
    assert term.metrics() == {"replay_nll": pytest.approx(float(nll)), "replay_elites": 5}
    assert total == pytest.approx(coefficient * float(nll))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.4])
def test_jensen_shannon_compares_both_at_the_temperature_that_sampled(table_VV, temperature):
    _, total = run(table_VV, JensenShannonReplay(coefficient=2.0), elites(temperature))
    logprobs = (table_VV.detach() / torch.tensor(temperature).double()).log_softmax(-1)
    expected = 0.0
    for prompt, own in ANSWERS.items():
        u = (logprobs[prompt, own] + 1.5).exp()
        generator = u * u.log() - (u + 1) * ((u + 1) / 2).log()
        expected += float(generator.mean()) / len(ANSWERS)
    assert total == pytest.approx(2.0 * expected, abs=1e-6)


def test_only_fallen_elites_are_replayed_by_the_floor_and_caps_are_counted(table_VV):
    choice = FloorReplay(coefficient=1.0, floor=0.2, max_weight=3.0)
    term, total = run(table_VV, choice, elites())
    probabilities = table_VV.detach().softmax(-1)
    expected, capped = 0.0, 0
    for prompt, own in ANSWERS.items():
        for answer in own:
            p = float(probabilities[prompt, answer])
            weight = min(0.2 / p, 3.0) if p < 0.2 else 0.0
            capped += 0.2 / p > 3.0
            expected += weight * -math.log(p) / (len(own) * len(ANSWERS))
    assert total == pytest.approx(expected, abs=1e-6) and expected > 0
    assert term.metrics()["replay_capped"] == capped / 5 and 0 < capped < 5


def group(prompt, *signatures):
    """A group of right samples with these signatures."""
    row = SimpleNamespace(prompt=SimpleNamespace(id=prompt))
    verdict = Verdict(reward=1.0)
    return [Judged(row, [], i, None, "", Judgement(verdict, s)) for i, s in enumerate(signatures)]


def test_where_narrow_replays_only_prompts_that_show_less_than_their_archive():
    archive = Elites({str(p): [e for e in elites() if e.prompt_id == str(p)] for p in ANSWERS})
    choice = NarrowReplay(elites_per_step=100)
    narrow, wide = group("4", "s5", "s5"), group("7", "s5", "s6", "s9")
    taken = drawn_elites(archive, choice, [narrow, wide, group("unknown", "x")], seed=0)
    assert {elite.prompt_id for elite in taken} == {"4"} and len(taken) == 3
    assert drawn_elites(archive, choice, [wide], seed=0) == []
    everything = drawn_elites(archive, UniformReplay(elites_per_step=100), [wide], seed=0)
    assert len(everything) == 5
    assert drawn_elites(archive, UniformReplay(coefficient=0.0), [narrow], seed=0) == []


def test_likelihood_is_of_the_policy_itself_whatever_the_temperature_that_sampled(table_VV):
    for choice in (UniformReplay(coefficient=2.0), NarrowReplay(coefficient=2.0)):
        term, total = run(table_VV, choice, elites(temperature=0.7))
        logprobs = table_VV.detach().log_softmax(-1)
        nll = sum(-logprobs[p, own].mean() for p, own in ANSWERS.items()) / len(ANSWERS)
        assert total == pytest.approx(2.0 * float(nll)) and term.metrics()["replay_nll"] * 2 == pytest.approx(
            total
        )


def test_every_elite_is_compared_with_its_own_base_and_temperature(table_VV):
    """Rows of many lengths and bases: a micro-batch must not read those of other rows."""
    given = [
        ReplayElite("a", "s1", [4], [5, 6, 8], [-1.0, -2.0, -0.5], 0.7),
        ReplayElite("a", "s2", [4], [6], [-3.0], 1.0),
        ReplayElite("b", "s1", [7], [5, 6], [-0.3, -0.9], 1.4),
        ReplayElite("b", "s2", [7], [8], [-0.1], 2.0),
    ]
    _, total = run(table_VV, JensenShannonReplay(coefficient=1.0), given)
    expected = 0.0
    for elite in given:
        pairs = zip([elite.prompt_ids[-1], *elite.completion_ids], elite.completion_ids, strict=False)
        values = []
        for (before, token), base in zip(pairs, elite.logprobs, strict=True):
            logprobs = (table_VV.detach()[before] / elite.temperature).log_softmax(-1)
            u = math.exp(float(logprobs[token]) - base)
            values.append(u * math.log(u) - (u + 1) * math.log((u + 1) / 2))
        expected += sum(values) / len(values) / len(given)
    assert total == pytest.approx(expected, abs=1e-5)


def test_as_many_elites_are_drawn_as_the_recipe_says_and_by_the_steps_seed():
    archive = Elites(
        {str(p): [ReplayElite(str(p), f"s{i}", [4], [5], [-1.0], 1.0) for i in range(2)] for p in range(20)}
    )
    assert len(drawn_elites(archive, UniformReplay(elites_per_step=2), [], seed=0)) == 2
    assert len(drawn_elites(archive, UniformReplay(elites_per_step=7), [], seed=0)) == 8  # prompts whole
    choice = FloorReplay(elites_per_step=6)
    draws = {tuple(e.prompt_id for e in drawn_elites(archive, choice, [], seed)) for seed in range(4)}
    assert len(draws) == 4
