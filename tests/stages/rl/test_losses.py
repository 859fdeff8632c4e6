"""The two terms of a step: whole groups, no unscorable sample, no dependence on how the batch is split."""

from dataclasses import replace

import pytest
import torch

from stages.domains.pool import Judgement
from stages.domains.protocol import Unscorable, Verdict
from stages.engines.batch import TokenBatch
from stages.engines.params import OptimizerParams, Sampling
from stages.engines.torch_trainer import TorchTrainer, open_trainer
from stages.estimators.advantages import group_relative
from stages.rl.losses import grpo_term, replay_term
from stages.rl.replay import ReplayElite
from stages.sampling.judged import rewards_PG
from stages.spec import Runtime

SAMPLING = Sampling(max_new_tokens=8)
UNSCORABLE = Judgement(Verdict(unscorable=Unscorable.WALL_CLOCK), None)


@pytest.fixture(scope="module")
def groups(sample, train_rows):
    found = sample(train_rows, 8, SAMPLING, seed=3)
    informative = group_relative(*rewards_PG(found)).informative_P
    assert 3 <= informative.sum() < len(found)  # of both kinds
    return found


@pytest.fixture(scope="module")
def trainer(base) -> TorchTrainer:
    return open_trainer(base, OptimizerParams(), 1, Runtime(threads=1))


def term(groups, rl_params, **changes):
    return grpo_term(groups, group_relative(*rewards_PG(groups)), rl_params(**changes), pad_id=0)


def gradient(trainer, terms, micro_rows=1000):
    trainer.model.zero_grad(set_to_none=True)
    for batch, loss in terms:
        for micro in batch.micro_batches(micro_rows):
            loss(trainer.logits(micro), micro).backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()])


ELITES = [
    ReplayElite("a", [2, 40, 3], [50, 1]),
    ReplayElite("a", [2, 40, 3], [51, 52, 53, 1]),
    ReplayElite("b", [2, 41, 42, 3], [54, 1]),
    ReplayElite("a", [2, 40, 3], [55, 56, 1]),
    ReplayElite("b", [2, 41, 42, 3], [57, 58, 1]),
]


def test_the_step_does_not_depend_on_micro_batches_or_order(groups, trainer, rl_params):
    def both(ordered, elites):
        grpo = term(ordered, rl_params)
        return [(grpo.batch, grpo.loss), replay_term(elites, 0.3, 0, [])]

    whole = gradient(trainer, both(groups, ELITES))
    assert whole.abs().max() > 1e-3
    for micro_rows in (1, 3, 7):
        split = gradient(trainer, both(groups, ELITES), micro_rows)
        assert torch.allclose(split, whole, rtol=0, atol=1e-6)
    other_order = gradient(trainer, both(groups[::-1], ELITES[::-1]), 5)
    assert torch.allclose(other_order, whole, rtol=0, atol=1e-6)


def test_metrics_of_ratios_do_not_depend_on_micro_batches(groups, trainer, rl_params):
    found = []
    for micro_rows in (1000, 2):
        grpo = term(groups, rl_params)
        gradient(trainer, [(grpo.batch, grpo.loss)], micro_rows)
        found.append(grpo.metrics())
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, abs=1e-6), name
    assert found[0]["k3"] == pytest.approx(0, abs=1e-6) and found[0]["ess"] == pytest.approx(1)


def test_only_informative_groups_are_in_the_batch_and_whole(groups, rl_params):
    grpo = term(groups, rl_params)
    advantages = group_relative(*rewards_PG(groups))
    kept = [
        sample
        for place, group in enumerate(groups)
        if advantages.informative_P[place]
        for sample in group
        if sample.scorable
    ]
    assert len(grpo.batch.rows_B) == len(kept)
    lengths = grpo.batch.attention_BT.sum(1) + 1
    assert lengths.tolist() == [len(s.prompt_ids) + len(s.rollout.completion_ids) for s in kept]
    row = 0
    for place, group in enumerate(groups):
        if advantages.informative_P[place]:
            size = sum(sample.scorable for sample in group)
            assert grpo.advantages_B[row : row + size].sum() == pytest.approx(0, abs=1e-5)
            row += size
    assert row == len(kept)


def test_token_ids_and_behaviour_logprobs_arrive_as_they_were_sampled(groups, rl_params):
    grpo = term(groups, rl_params)
    informative = group_relative(*rewards_PG(groups)).informative_P
    kept = [s for place, group in enumerate(groups) if informative[place] for s in group if s.scorable]
    for row, judged in enumerate(kept):
        mask = grpo.batch.mask_BT[row]
        assert grpo.batch.target_BT[row][mask].tolist() == judged.rollout.completion_ids
        assert grpo.old_logprobs_BT[row][mask].tolist() == pytest.approx(judged.rollout.logprobs)
        assert not grpo.old_logprobs_BT[row][~mask].any()


def test_an_unscorable_sample_leaves_the_group_and_the_loss(groups, trainer, rl_params):
    """The step is that of groups in which it was never drawn."""
    informative = group_relative(*rewards_PG(groups)).informative_P
    place = int(informative.nonzero()[0])
    group = groups[place]
    wrong = next(i for i, sample in enumerate(group) if sample.scorable and not sample.correct)
    marked = [replace(s, judgement=UNSCORABLE) if i == wrong else s for i, s in enumerate(group)]
    without = [replace(s, sample=i) for i, s in enumerate(s for j, s in enumerate(group) if j != wrong)]
    terms = [term([each], rl_params) for each in (marked, without)]
    assert terms[0].advantages_B.tolist() == pytest.approx(terms[1].advantages_B.tolist())
    gradients = [gradient(trainer, [(each.batch, each.loss)]) for each in terms]
    assert torch.allclose(*gradients, rtol=0, atol=1e-6)
    counted_as_wrong = term([group], rl_params)
    assert len(counted_as_wrong.batch.rows_B) == len(terms[0].batch.rows_B) + 1
    assert not torch.allclose(
        gradient(trainer, [(counted_as_wrong.batch, counted_as_wrong.loss)]), gradients[0], rtol=0, atol=1e-4
    )


def test_gradient_of_replay_on_a_tabular_softmax_is_policy_minus_uniform_over_elites():
    """methods.md 1(e), through the stage's own term: logits from a table, one token an answer."""
    vocabulary, coefficient = 9, 0.3
    answers = {4: [5, 6, 8], 7: [5, 6]}  # prompt token -> elites
    elites = [
        ReplayElite(str(prompt), [prompt], [answer]) for prompt in answers for answer in answers[prompt]
    ]
    table_VV = torch.randn(vocabulary, vocabulary, dtype=torch.float64).requires_grad_()
    shares: list[float] = []
    batch, loss = replay_term(elites, coefficient, 0, shares)
    for micro in batch.micro_batches(2):
        loss(table_VV[micro.input_BT], micro).backward()
    for prompt, own in answers.items():
        uniform = torch.zeros(vocabulary, dtype=torch.float64)
        uniform[own] = 1 / len(own)
        policy = table_VV[prompt].softmax(-1).detach()
        expected = coefficient * (policy - uniform) / len(answers)  # the mean over prompts
        torch.testing.assert_close(table_VV.grad[prompt], expected, rtol=0, atol=1e-8)
    untouched = [token for token in range(vocabulary) if token not in answers]
    assert not table_VV.grad[untouched].any()
    logprobs = table_VV.detach().log_softmax(-1)
    nll = sum(-logprobs[p, own].mean() for p, own in answers.items()) / len(answers)
    assert sum(shares) == pytest.approx(float(nll))


def test_the_ratio_is_taken_at_the_sampling_temperature(sample, train_rows, trainer, rl_params):
    hot = Sampling(max_new_tokens=8, temperature=1.3)
    groups = sample(train_rows, 8, hot, seed=3)
    gaps = []
    for sampling in (hot, SAMPLING):
        grpo = term(groups, rl_params, sampling=sampling)
        batch: TokenBatch = grpo.batch
        with torch.no_grad():
            grpo.loss(trainer.logits(batch), batch)
        gaps.append(grpo.agreement.gap)
    assert gaps[0] < 1e-5 and gaps[1] > 0.05
