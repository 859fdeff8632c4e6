"""The snippet `logprobs - logprobs.mean(dim=-1)` on [B, G, T] is no score centering: it is a mean over time.

A counter-example, its numbers by enumeration: V = 4 and T = 3, weight clip(r, .8, 1.2), reward minus its
mean as advantage. Read with the vocabulary as last dimension, it centres under the uniform distribution.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from benchmarks.proof.centered import gradient, mean_reward, policies, rewards_S, weight
from benchmarks.proof.tabular import Tabular, flat
from stages.estimators.params import Clip

CLIP = Clip(low=0.8, high=1.2)
seeds = given(seed=st.integers(0, 10**6))
brief = settings(deadline=None, max_examples=15)


def assert_blocks(found, expected, atol=1e-10):
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=atol)


def zeros(trainer):
    return [torch.zeros_like(table) for table in trainer.table]


def snippet(trainer, sampler, reward_S, ratio_in_graph, over="time"):
    logp_ST = trainer.logprobs_ST()
    ratio_ST = weight((logp_ST - sampler.logprobs_ST().detach()).exp(), CLIP)
    if over == "time":
        mean_ST = logp_ST.mean(dim=-1, keepdim=True)
    else:
        mean_ST = trainer.logits_STV().log_softmax(-1).mean(dim=-1)
    advantages_S1 = (reward_S - mean_reward(sampler, reward_S))[:, None]
    ratio_ST = ratio_ST if ratio_in_graph else ratio_ST.detach()
    return trainer.expected_gradient(-(advantages_S1 * ratio_ST * (logp_ST - mean_ST)).sum(1), sampler)


@seeds
@brief
def test_on_policy_it_teaches_nothing(seed):
    trainer = Tabular.random(4, 3, seed)
    reward_S = rewards_S(seed, trainer)
    assert flat(trainer.true_gradient(reward_S)).norm() > 1e-3
    found = snippet(trainer, trainer.near(seed, 0.0), reward_S, ratio_in_graph=False)
    assert_blocks(found, zeros(trainer), atol=1e-12)


@seeds
@brief
def test_on_policy_with_the_ratio_in_the_graph_it_weighs_by_surprise(seed):
    """What is left is -E[A sum_t (log p_t - mean over time) s_t]: another update than the true one."""
    trainer = Tabular.random(4, 3, seed)
    reward_S = rewards_S(seed, trainer)
    sampler = trainer.near(seed, 0.0)
    found = snippet(trainer, sampler, reward_S, ratio_in_graph=True)
    logp_ST = trainer.logprobs_ST()
    surprise_ST = (logp_ST - logp_ST.mean(1, keepdim=True)).detach()
    advantages_S1 = (reward_S - mean_reward(sampler, reward_S))[:, None]
    expected = trainer.expected_gradient(-(advantages_S1 * surprise_ST * logp_ST).sum(1), sampler)
    assert_blocks(found, expected)


def test_its_numbers():
    """Over 40 policies: the update with the ratio in the graph opposes the true one, on average -.53."""
    cosines, leaks, vocabulary_cosines, vocabulary_leaks = [], [], [], []
    for seed in range(40):
        trainer = Tabular.random(4, 3, seed)
        reward_S = rewards_S(seed, trainer)
        sampler = trainer.near(seed + 1000, 0.0)
        true = flat(trainer.true_gradient(reward_S))
        found = flat(snippet(trainer, sampler, reward_S, ratio_in_graph=True))
        cosines.append(cosine_similarity(found, true, 0))
        off = trainer.near(seed + 1000, 0.45)
        vocabulary = flat(snippet(trainer, off, reward_S, False, over="vocabulary"))
        vocabulary_cosines.append(cosine_similarity(vocabulary, true, 0))
        first_S = reward_S[:4][trainer.tokens_ST[:, 0]]  # depends on token 1 only
        for over, kept in [("time", leaks), ("vocabulary", vocabulary_leaks)]:
            blocks = snippet(trainer, off, first_S, False, over)
            kept.append(flat(blocks[1:]).norm() / flat(blocks).norm())
    assert torch.stack(cosines).mean() == pytest.approx(-0.53, abs=0.06)
    assert torch.stack(leaks).min() > 0.3  # must be 0: later tokens tell nothing
    assert torch.stack(vocabulary_leaks).min() > 0.15
    assert torch.stack(vocabulary_cosines).mean() == pytest.approx(0.85, abs=0.03)


@seeds
@brief
def test_ours_leaks_nothing_where_the_snippet_does(seed):
    trainer, sampler = policies(seed)
    first_S = rewards_S(seed, trainer)[:4][trainer.tokens_ST[:, 0]]
    _, *later = gradient(trainer, sampler, first_S, CLIP)
    assert flat(later).abs().max() < 1e-12
    _, *later = snippet(trainer, sampler, first_S, ratio_in_graph=False)
    assert flat(later).abs().max() > 1e-6
