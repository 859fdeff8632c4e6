"""Another policy's distribution, asked for by place."""

import pytest
import torch

from stages.errors import GuardError
from stages.estimators.distribution import FromHidden, FromLogits, TopHead

PLACES = torch.tensor([0, 4, 5])


@pytest.fixture
def logits():
    return torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("temperature", [1.0, 0.6, torch.tensor([0.5, 2.0])], ids=str)
def test_log_probs_are_of_these_places_at_this_temperature(logits, temperature):
    found = FromLogits(logits, temperature).logprobs_NV(PLACES)
    spread = temperature[:, None, None] if isinstance(temperature, torch.Tensor) else temperature
    expected = (logits / spread).log_softmax(-1).reshape(6, 7)[PLACES]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.6, torch.tensor([0.5, 2.0])], ids=str)
def test_hidden_states_give_what_their_logits_give(temperature):
    states = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    head = torch.nn.Linear(5, 7)
    found = FromHidden(states, head, temperature).logprobs_NV(PLACES)
    torch.testing.assert_close(found, FromLogits(head(states), temperature).logprobs_NV(PLACES))
    assert not found.requires_grad


def test_the_head_sees_the_states_of_the_asked_places_only():
    seen = []

    def head(states_ND):
        seen.append(states_ND.shape)
        return states_ND

    FromHidden(torch.zeros(2, 3, 5), head).logprobs_NV(PLACES)
    assert seen == [(3, 5)]


def test_log_probs_carry_no_gradient_and_are_at_least_single_precision(logits):
    found = FromLogits(logits.requires_grad_()).logprobs_NV(PLACES)
    assert not found.requires_grad
    low = FromLogits(logits.bfloat16()).logprobs_NV(PLACES)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.exp().sum(-1), torch.ones(3))
    assert FromHidden(logits.bfloat16(), lambda states: states).logprobs_NV(PLACES).dtype == torch.float32


def test_a_recorded_head_is_read_by_place():
    ids = torch.arange(12).view(2, 3, 2)
    logprobs = -ids.float()
    found_ids, found_logprobs = TopHead(ids, logprobs).at(PLACES)
    assert found_ids.tolist() == [[0, 1], [8, 9], [10, 11]]
    assert torch.equal(found_logprobs, -found_ids.float())


def test_ids_without_an_entry_are_never_read():
    head = TopHead(torch.tensor([[[3, -1]]]), torch.tensor([[[-0.5, float("-inf")]]]))
    ids, logprobs = head.at(torch.tensor([0]))
    assert ids.tolist() == [[3, 0]]
    assert logprobs.tolist() == [[-0.5, float("-inf")]]


def test_a_head_of_other_shapes_or_types_is_refused():
    with pytest.raises(
        GuardError, match=r"one shape \[rows, tokens, entries\], got \[1, 2, 3\] and \[1, 2, 4\]"
    ):
        TopHead(torch.zeros(1, 2, 3, dtype=torch.int64), torch.zeros(1, 2, 4))
    with pytest.raises(GuardError, match="one shape"):
        TopHead(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3))
    with pytest.raises(GuardError, match=r"int64 token ids, got torch\.int32"):
        TopHead(torch.zeros(1, 2, 3, dtype=torch.int32), torch.zeros(1, 2, 3))
