"""Token rows as tensors: padded, shifted for next-token prediction, split into micro-batches by length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenBatch:
    """`B` rows, right-padded to `T + 1` tokens.

    Position t of everything [B, T] is about predicting token t + 1; ids and rows are int64, the mask bool.
    `rows_B` are the rows' places in the batch that this one was cut from.
    """

    input_BT: Tensor
    target_BT: Tensor
    attention_BT: Tensor
    mask_BT: Tensor  # the targets that the loss may see
    rows_B: Tensor

    def to(self, device: torch.device) -> "TokenBatch":
        return TokenBatch(
            input_BT=self.input_BT.to(device),
            target_BT=self.target_BT.to(device),
            attention_BT=self.attention_BT.to(device),
            mask_BT=self.mask_BT.to(device),
            rows_B=self.rows_B.to(device),
        )

    def take(self, values_BT: Tensor) -> Tensor:
        """This micro-batch's part of per-token values of the whole batch, on the micro-batch's device."""
        return self.take_rows(values_BT)[:, : self.mask_BT.shape[1]]

    def take_rows(self, values_B: Tensor) -> Tensor:
        """This micro-batch's part of values [B, ...] of the whole batch, on the micro-batch's device."""
        return values_B[self.rows_B.to(values_B.device)].to(self.rows_B.device)

    def take_advantages(self, advantages_BT: Tensor) -> Tensor:
        """This micro-batch's part of advantages [B, T], or of [B, 1], one a row."""
        return self.take_rows(advantages_BT) if advantages_BT.shape[1] == 1 else self.take(advantages_BT)

    @property
    def target_count(self) -> int:
        return int(self.mask_BT.sum())

    def micro_batches(self, rows: int) -> Iterator["TokenBatch"]:
        """Parts of at most `rows` rows, of similar length, each cut to its longest row."""
        lengths_B = self.attention_BT.sum(1)
        order_B = torch.argsort(lengths_B, stable=True)
        for part_B in order_B.split(rows):
            width = int(lengths_B[part_B].max())
            yield TokenBatch(
                input_BT=self.input_BT[part_B, :width],
                target_BT=self.target_BT[part_B, :width],
                attention_BT=self.attention_BT[part_B, :width],
                mask_BT=self.mask_BT[part_B, :width],
                rows_B=self.rows_B[part_B],
            )


def token_batch(
    tokens: Sequence[Sequence[int]], loss_mask: Sequence[Sequence[int]], pad_id: int
) -> TokenBatch:
    """Rows of token ids with a 0/1 mask of the same length: which tokens are to be predicted.

    Raises ValueError on a row that is too short or whose mask has another length.
    """
    width = max(len(row) for row in tokens)
    if width < 2:
        raise ValueError("a row needs two tokens: one to predict from, one to predict")
    padded_BT = torch.full((len(tokens), width), pad_id, dtype=torch.long)
    mask_BT = torch.zeros((len(tokens), width), dtype=torch.bool)
    attention_BT = torch.zeros((len(tokens), width), dtype=torch.long)
    for row, (ids, mask) in enumerate(zip(tokens, loss_mask, strict=True)):
        if len(ids) != len(mask):
            raise ValueError(f"row {row} has {len(ids)} tokens and a loss mask of {len(mask)}")
        padded_BT[row, : len(ids)] = torch.tensor(ids)
        mask_BT[row, : len(ids)] = torch.tensor(mask, dtype=torch.bool)
        attention_BT[row, : len(ids)] = 1
    return TokenBatch(
        input_BT=padded_BT[:, :-1],
        target_BT=padded_BT[:, 1:],
        attention_BT=attention_BT[:, 1:],
        mask_BT=mask_BT[:, 1:],
        rows_B=torch.arange(len(tokens)),
    )


def completion_batch(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], pad_id: int
) -> TokenBatch:
    """Prompt and completion rows; only completion tokens are targets."""
    return token_batch(
        [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)],
        [
            [0] * len(prompt) + [1] * len(completion)
            for prompt, completion in zip(prompts, completions, strict=True)
        ],
        pad_id,
    )


def align_to_targets(batch: TokenBatch, values: Sequence[Sequence[float]]) -> Tensor:
    """Per-completion-token values [row][token] -> [B, T], in the places of the row's targets, else 0."""
    device = batch.mask_BT.device
    aligned_BT = torch.zeros(batch.mask_BT.shape, device=device)
    aligned_BT[batch.mask_BT] = torch.tensor([value for row in values for value in row], device=device)
    return aligned_BT
