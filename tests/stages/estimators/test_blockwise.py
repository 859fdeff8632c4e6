"""Functions of logits a block at a time: the values and gradients of plain torch, without its memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stages.estimators import blockwise
from stages.estimators.blockwise import at_positions, blocks, per_position, scaled, target_logprobs_BT
from stages.estimators.centering import centred_logprobs
from stages.estimators.distillation import (
    forward_kl_BT,
    reverse_kl_BT,
    sampled_terms,
    top_k_reverse_kl_BT,
    variance_reduced_terms,
)
from stages.estimators.distribution import FromHidden, TopHead
from stages.estimators.params import Truncate

B, T, V = 3, 5, 7


@pytest.fixture(params=[1, 2 * V, 2**21])
def block_elements(request, monkeypatch):
    """Blocks of one position, of two, and one for all: none may matter."""
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", request.param)


in_blocks = pytest.mark.usefixtures("block_elements")


def batch(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, T, V, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(V, (B, T), generator=generator)
    mask = torch.rand(B, T, generator=generator) < 0.6
    mask[0, 0], mask[0, 1] = True, False
    return logits, target, mask


def plain_logprobs(logits, target, temperature=1.0):
    return (logits / temperature).log_softmax(-1).gather(-1, target[..., None])[..., 0]


@in_blocks
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.3, "rows"])
def test_target_logprobs_are_those_of_a_log_softmax(temperature, seed):
    logits, target, mask = batch(seed)
    given = expected_at = temperature
    if temperature == "rows":
        given = torch.tensor([0.6, 1.0, 1.3], dtype=torch.float64)
        expected_at = given[:, None, None]
    found = target_logprobs_BT(logits, target, mask, given)
    expected = plain_logprobs(logits, target, expected_at) * mask
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    slopes = torch.randn(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for own, other in zip(
        torch.autograd.grad((found * slopes).sum(), logits),
        torch.autograd.grad((expected * slopes).sum(), logits),
        strict=True,
    ):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


@in_blocks
@pytest.mark.parametrize("hole", [float("nan"), float("inf"), float("-inf")])
def test_masked_positions_are_exactly_zero_forward_and_backward(hole):
    logits, target, mask = batch(0)
    holed = logits.detach().masked_fill(~mask[..., None], hole).requires_grad_()
    found = target_logprobs_BT(holed, target.masked_fill(~mask, -100), mask)
    assert torch.equal(found[~mask], torch.zeros_like(found[~mask]))
    torch.testing.assert_close(found[mask], plain_logprobs(logits, target)[mask])
    # Even a slope that is not a number at a hole stays out of the gradient.
    slopes = torch.ones_like(found).masked_fill(~mask, float("nan"))
    (gradient,) = torch.autograd.grad(found, holed, slopes)
    assert torch.equal(gradient[~mask], torch.zeros_like(gradient[~mask]))
    (expected,) = torch.autograd.grad(plain_logprobs(logits, target)[mask].sum(), logits)
    torch.testing.assert_close(gradient[mask], expected[mask], rtol=0, atol=1e-12)


@in_blocks
def test_several_values_each_with_its_own_slope():
    logits, target, mask = batch(1)
    targets = target.reshape(-1)

    def function(logits_NV, places_N):
        logp_NV = logits_NV.log_softmax(-1)
        entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
        constant_N = logits_NV.detach().amax(-1)
        return entropy_N, constant_N, logp_NV.gather(-1, targets[places_N, None]).squeeze(-1)

    found = at_positions(function, logits, mask)
    logp = logits.log_softmax(-1)
    expected = (-(logp.exp() * logp).sum(-1), logits.detach().amax(-1), plain_logprobs(logits, target))
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other * mask, rtol=0, atol=1e-12)
    for weights in [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (2.0, 5.0, -3.0)]:
        (own,) = torch.autograd.grad(
            sum(w * value.sum() for w, value in zip(weights, found, strict=True)), logits, retain_graph=True
        )
        total = weights[0] * (expected[0] * mask).sum() + weights[2] * (expected[2] * mask).sum()
        (other,) = torch.autograd.grad(total, logits, retain_graph=True)
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


@in_blocks
def test_a_constant_function_has_a_zero_gradient():
    logits, _, mask = batch(2)
    (found,) = at_positions(lambda logits_NV, _: (logits_NV.detach().sum(-1),), logits, mask)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert torch.equal(gradient, torch.zeros_like(logits))


@in_blocks
def test_nothing_to_train_on_is_zeros():
    logits, target, _ = batch(3)
    found = target_logprobs_BT(logits, target, torch.zeros(B, T, dtype=torch.bool))
    assert torch.equal(found, torch.zeros(B, T, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert torch.equal(gradient, torch.zeros_like(logits))


@in_blocks
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_logits_are_taken_in_single_precision(dtype):
    """A log-prob in bfloat16 has two digits; its gradient comes back in the logits' own type."""
    logits, target, mask = batch(4, dtype)
    found = target_logprobs_BT(logits, target, mask, 0.7)
    assert found.dtype == torch.float32
    precise = logits.detach().float().requires_grad_()
    expected = plain_logprobs(precise, target, 0.7) * mask
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), precise)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected_gradient.to(dtype), rtol=1e-2, atol=1e-3)


@in_blocks
def test_the_places_are_those_of_the_flattened_batch_in_order():
    logits, _, mask = batch(5)
    seen = []

    def function(logits_NV, places_N):
        assert torch.equal(logits_NV.detach(), logits.detach().flatten(0, 1)[places_N])
        seen.append(places_N)
        return (places_N.double(),)

    (found,) = at_positions(function, logits, mask)
    expected = torch.arange(B * T, dtype=torch.float64).view(B, T) * mask
    assert torch.equal(found, expected)
    assert torch.equal(torch.cat(seen), mask.reshape(-1).nonzero().squeeze(1))


def test_blocks_hold_at_most_their_number_of_logits(monkeypatch):
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 100)
    places = torch.arange(11)
    assert [len(part) for part in blocks(places, 25)] == [4, 4, 3]
    assert [len(part) for part in blocks(places, 1000)] == [1] * 11  # one position is the least
    assert torch.equal(torch.cat(list(blocks(places, 25))), places)


def test_a_temperature_for_each_row_is_spread_over_its_positions():
    spread = per_position(torch.tensor([0.5, 2.0]), torch.ones(2, 3))
    assert spread.tolist() == [0.5] * 3 + [2.0] * 3
    assert per_position(0.5, torch.ones(2, 3)) == 0.5
    logits = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    assert scaled(logits, spread, torch.tensor([4, 1])).tolist() == [[0.5, 1.0], [8.0, 16.0]]
    assert scaled(logits, 0.5, torch.tensor([4, 1])).tolist() == [[2.0, 4.0], [8.0, 16.0]]
    assert scaled(logits, 1.0, torch.tensor([4, 1])) is logits


class Allocations(TorchDispatchMode):
    """Counts the tensors of at least `elements` elements that are made, views and writes in place aside."""

    def __init__(self, elements):
        super().__init__()
        self.elements, self.made = elements, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {
            leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)
        }
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.numel() >= self.elements:
                self.made += leaf.untyped_storage().data_ptr() not in given
        return result


def allocations(loss, logits):
    """(forward, backward) tensors of the logits' size, apart from the logits."""
    with Allocations(logits.numel()) as forward:
        value = loss(logits)
    with Allocations(logits.numel()) as backward:
        torch.autograd.grad(value.sum(), logits)
    return forward.made, backward.made


ROWS, LENGTH, WIDTH, VOCABULARY, K = 4, 16, 8, 96, 5
generator = torch.Generator().manual_seed(7)
EVERYWHERE = torch.ones(ROWS, LENGTH, dtype=torch.bool)
TARGET = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=generator)
OTHER = FromHidden(
    torch.randn(ROWS, LENGTH, WIDTH, generator=generator), torch.nn.Linear(WIDTH, VOCABULARY), 0.7
)
HEAD = TopHead(torch.arange(K).expand(ROWS, LENGTH, K), torch.full((ROWS, LENGTH, K), 0.1).log())
LOSSES = {
    "log-probs": lambda logits: target_logprobs_BT(logits, TARGET, EVERYWHERE, 0.7),
    "centred": lambda logits: (
        centred_logprobs(logits, TARGET, EVERYWHERE, OTHER, Truncate(), 0.7).corrections_BT
    ),
    "centred, head": lambda logits: (
        centred_logprobs(logits, TARGET, EVERYWHERE, HEAD, Truncate(), 0.7).corrections_BT
    ),
    "reverse KL": lambda logits: reverse_kl_BT(logits, EVERYWHERE, OTHER, 0.7),
    "reverse KL, top k": lambda logits: top_k_reverse_kl_BT(logits, EVERYWHERE, OTHER, K, 0.7),
    "forward KL": lambda logits: forward_kl_BT(logits, EVERYWHERE, OTHER, 0.7),
    "sampled": lambda logits: sampled_terms(logits, TARGET, EVERYWHERE, OTHER, 0.7).logprobs_BT,
    "variance reduced": lambda logits: (
        variance_reduced_terms(logits, TARGET, EVERYWHERE, OTHER, 0.7).logprobs_BT
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_tensor_of_the_logits_size_is_made_but_their_gradient(monkeypatch, loss, dtype):
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 10 * VOCABULARY)
    logits = torch.randn(ROWS, LENGTH, VOCABULARY).to(dtype).requires_grad_()
    assert allocations(loss, logits) == (0, 1)


def test_the_count_of_allocations_sees_what_a_plain_log_softmax_makes():
    logits = torch.randn(ROWS, LENGTH, VOCABULARY).requires_grad_()
    forward, backward = allocations(lambda logits: plain_logprobs(logits, TARGET, 0.7), logits)
    assert forward >= 2
    assert backward >= 2
