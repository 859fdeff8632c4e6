"""Rows of tokens as tensors: what is predicted from what, which tokens count, what a micro-batch holds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stages.engines.batch import TokenBatch, align_to_targets, completion_batch, token_batch
from stages.estimators.blockwise import target_logprobs_BT

EOS = 1
few = settings(deadline=None, max_examples=30)
row = st.lists(st.tuples(st.integers(2, 9), st.integers(0, 1)), min_size=1, max_size=8)
some_rows = st.lists(row, min_size=1, max_size=6).filter(lambda drawn: max(map(len, drawn)) > 1)


def split(drawn: list[list[tuple[int, int]]]) -> tuple[list[list[int]], list[list[int]]]:
    return (
        [[token for token, _ in row] for row in drawn],
        [[mask for _, mask in row] for row in drawn],
    )


def with_logits(batch: TokenBatch, vocabulary: int = 10) -> Tensor:
    drawn = torch.Generator().manual_seed(0)
    shape = (*batch.mask_BT.shape, vocabulary)
    return torch.randn(shape, dtype=torch.float64, generator=drawn).requires_grad_()


@few
@given(some_rows)
def test_position_t_predicts_token_t_plus_1_and_counts_if_that_token_does(
    drawn: list[list[tuple[int, int]]],
) -> None:
    tokens, masks = split(drawn)
    batch = token_batch(tokens, masks, pad_id=0)
    for at, (ids, mask) in enumerate(zip(tokens, masks, strict=True)):
        for t in range(batch.mask_BT.shape[1]):
            inside = t + 1 < len(ids)
            assert bool(batch.mask_BT[at, t]) == (inside and bool(mask[t + 1]))
            assert bool(batch.attention_BT[at, t]) == inside
            assert int(batch.target_BT[at, t]) == (ids[t + 1] if inside else 0)
            assert int(batch.input_BT[at, t]) == (ids[t] if t < len(ids) else 0)


def test_first_token_is_never_a_target() -> None:
    batch = token_batch([[4, 5, 6]], [[1, 0, 0]], pad_id=0)
    assert batch.target_count == 0


@pytest.mark.parametrize("pad_id", [0, EOS])
def test_end_of_sequence_is_trained_on_whatever_the_padding(pad_id: int) -> None:
    batch = completion_batch([[4, 5], [4, 5]], [[6, 7, 8, EOS], [6, EOS]], pad_id)
    logits_BTV = with_logits(batch)
    target_logprobs_BT(logits_BTV, batch.target_BT, batch.mask_BT).sum().backward()
    assert logits_BTV.grad is not None
    moved_BT = logits_BTV.grad.abs().sum(-1) > 0
    assert batch.mask_BT.tolist() == [
        [False, True, True, True, True],
        [False, True, True, False, False],
    ]
    assert torch.equal(moved_BT, batch.mask_BT)
    assert batch.target_BT[1, 2] == EOS and logits_BTV.grad[1, 2, EOS] > 0
    assert logits_BTV.grad[1, 3].abs().sum() == 0, "what follows the first EOS is padding"
    assert batch.attention_BT[1].tolist() == [1, 1, 1, 0, 0]


def test_tool_tokens_between_two_answers_are_read_but_not_trained_on() -> None:
    tokens, mask = [[2, 3, 4, 5, 6, 7, 8]], [[0, 0, 1, 0, 0, 1, 1]]  # prompt, answer, tool, answer
    batch = token_batch(tokens, mask, pad_id=0)
    other = token_batch([[2, 3, 4, 9, 9, 7, 8]], mask, pad_id=0)
    assert batch.mask_BT.tolist() == [[False, True, False, False, True, True]]
    assert batch.attention_BT.tolist() == [[1] * 6]
    logits_BTV = with_logits(batch)
    found_BT = target_logprobs_BT(logits_BTV, batch.target_BT, batch.mask_BT)
    assert torch.equal(found_BT, target_logprobs_BT(logits_BTV, other.target_BT, other.mask_BT))
    assert found_BT[0, [0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    log_p_BTV = logits_BTV.log_softmax(-1)
    assert torch.allclose(found_BT[0, 1], log_p_BTV[0, 1, 4]) and torch.allclose(
        found_BT[0, 4], log_p_BTV[0, 4, 7]
    )


@few
@given(some_rows)
def test_values_of_tokens_land_on_their_targets(drawn: list[list[tuple[int, int]]]) -> None:
    """Each token carries its own number; holes in the mask shift nothing."""
    tokens, masks = split(
        [[(token, int(place > 0) * mask) for place, (token, mask) in enumerate(row)] for row in drawn]
    )
    batch = token_batch(tokens, masks, pad_id=0)
    of_token = [
        [100.0 * at + place for place, mask in enumerate(row) if mask] for at, row in enumerate(masks)
    ]
    aligned_BT = align_to_targets(batch, of_token)
    for at, mask in enumerate(masks):
        for t in range(batch.mask_BT.shape[1]):
            counts = t + 1 < len(mask) and mask[t + 1]
            assert aligned_BT[at, t] == (100.0 * at + t + 1 if counts else 0.0)


@few
@given(some_rows, st.integers(1, 7))
def test_micro_batches_hold_every_row_once_and_lose_nothing(
    drawn: list[list[tuple[int, int]]], at_most: int
) -> None:
    tokens, masks = split(drawn)
    batch = token_batch(tokens, masks, pad_id=0)
    parts = list(batch.micro_batches(at_most))
    assert sorted(torch.cat([part.rows_B for part in parts]).tolist()) == list(range(len(tokens)))
    assert sum(part.target_count for part in parts) == batch.target_count
    widths = [part.mask_BT.shape[1] for part in parts]
    assert widths == sorted(widths), "rows of similar length together"
    for part in parts:
        assert len(part.rows_B) <= at_most
        width = part.mask_BT.shape[1]
        assert width == int(part.attention_BT.sum(1).max()), "cut to the longest row, no further"
        for name in ("input_BT", "target_BT", "attention_BT", "mask_BT"):
            assert torch.equal(getattr(part, name), getattr(batch, name)[part.rows_B, :width]), name


def test_a_micro_batch_takes_its_own_rows_of_the_whole_batch() -> None:
    batch = token_batch([[2, 3, 4, 5], [6, 7], [8, 9, 2]], [[0, 1, 1, 1], [0, 1], [0, 1, 1]], pad_id=0)
    values_BT = torch.arange(9.0).view(3, 3)
    short, long = batch.micro_batches(2)
    assert short.rows_B.tolist() == [1, 2] and long.rows_B.tolist() == [0]
    assert short.take(values_BT).tolist() == [[3.0, 4.0], [6.0, 7.0]]
    assert long.take(values_BT).tolist() == [[0.0, 1.0, 2.0]]
    assert short.take_rows(values_BT).tolist() == [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    assert short.take_rows(torch.tensor([10.0, 20.0, 30.0])).tolist() == [20.0, 30.0]


def test_rows_that_cannot_be_predicted_are_refused() -> None:
    with pytest.raises(ValueError, match="two tokens"):
        token_batch([[4]], [[1]], pad_id=0)
    with pytest.raises(ValueError, match="row 1 has 2 tokens and a loss mask of 3"):
        token_batch([[4, 5], [4, 5]], [[0, 1], [0, 1, 1]], pad_id=0)
