"""The replay term on a tabular softmax: its gradient is pi - uniform over elites."""

import pytest
import torch

from stages.errors import GuardError
from stages.estimators.replay import elite_weights, replay_nll_B


def test_gradient_on_a_tabular_policy_is_policy_minus_uniform_over_elites():
    """methods.md 1(e). One token per answer; prompt a has elites {0, 3}, b has {1, 2, 4}, c has {5}."""
    elites = [("a", 0), ("b", 1), ("a", 3), ("b", 2), ("c", 5), ("b", 4)]
    logits = {p: torch.randn(6, dtype=torch.float64).requires_grad_() for p in "abc"}
    logprobs_BT = torch.stack([logits[p].log_softmax(-1)[y] for p, y in elites])[:, None]
    weights = torch.tensor(elite_weights([p for p, _ in elites]), dtype=torch.float64)
    loss = (weights * replay_nll_B(logprobs_BT, torch.ones(len(elites), 1))).sum()
    loss.backward()
    for prompt, own in {"a": [0, 3], "b": [1, 2, 4], "c": [5]}.items():
        uniform = torch.zeros(6, dtype=torch.float64)
        uniform[own] = 1 / len(own)
        expected = (logits[prompt].softmax(-1).detach() - uniform) / 3  # the mean over three prompts
        torch.testing.assert_close(logits[prompt].grad, expected, rtol=0, atol=1e-15)


def test_length_of_an_elite_does_not_weigh():
    logprobs = torch.tensor([[-1.0, -3.0, -7.0], [-2.0, -9.0, -9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert replay_nll_B(logprobs, mask).tolist() == [2.0, 2.0]


def test_weights_sum_to_one_and_are_uniform_over_prompts():
    weights = elite_weights(["a", "b", "a", "a"])
    assert weights == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    assert elite_weights([]) == []


def test_an_elite_without_tokens_is_refused():
    with pytest.raises(GuardError, match="no token"):
        replay_nll_B(torch.zeros(2, 2), torch.tensor([[1, 0], [0, 0]]))
