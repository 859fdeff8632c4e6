"""A policy small enough to enumerate: one row of logits for every prefix of T tokens out of V.

Every sequence is a row of a batch, so the functions under proof take it as they take a model's batch, and an
expectation is a sum over all rows weighted by their exact probability. Shapes: S = V ** T sequences.
"""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor


class Tabular:
    """`table[t]` are the logits [V ** t, V] of the next token after each prefix of t tokens."""

    def __init__(self, table: Sequence[Tensor]) -> None:
        self.table = list(table)
        self.vocabulary, self.length = table[0].shape[1], len(table)
        places_S = torch.arange(self.vocabulary**self.length)
        self.prefix_ST = torch.stack(
            [places_S // self.vocabulary ** (self.length - t) for t in range(self.length)], 1
        )
        self.tokens_ST = torch.stack(
            [
                places_S // self.vocabulary ** (self.length - 1 - t) % self.vocabulary
                for t in range(self.length)
            ],
            1,
        )
        self.mask_ST = torch.ones_like(self.tokens_ST, dtype=torch.bool)

    @classmethod
    def random(cls, vocabulary: int, length: int, seed: int, scale: float = 1.0) -> Self:
        """Normal logits of this scale, in float64, differentiable."""
        drawn = torch.Generator().manual_seed(seed)
        return cls(
            [
                (
                    scale * torch.randn(vocabulary**t, vocabulary, dtype=torch.float64, generator=drawn)
                ).requires_grad_()
                for t in range(length)
            ]
        )

    def near(self, seed: int, distance: float) -> Self:
        """Another policy: this one's logits with normal noise of scale `distance`."""
        noise = type(self).random(self.vocabulary, self.length, seed, distance)
        return type(self)(
            [
                (own.detach() + added.detach()).requires_grad_()
                for own, added in zip(self.table, noise.table, strict=True)
            ]
        )

    def logits_STV(self) -> Tensor:
        """Of every position of every sequence; differentiable in the table."""
        return torch.stack([rows[self.prefix_ST[:, t]] for t, rows in enumerate(self.table)], 1)

    def logprobs_ST(self) -> Tensor:
        """Of the tokens of every sequence; differentiable in the table."""
        log_p_STV = self.logits_STV().log_softmax(-1)
        return log_p_STV.gather(-1, self.tokens_ST.unsqueeze(-1)).squeeze(-1)

    def probability_S(self) -> Tensor:
        """Exact probability of every sequence, detached; sums to 1."""
        return self.logprobs_ST().sum(-1).exp().detach()

    def gradient(self, loss: Tensor) -> list[Tensor]:
        """The gradient of a scalar by position: one [V ** t, V] tensor for each t, zeros where none flows."""
        found = torch.autograd.grad(loss, self.table, allow_unused=True, retain_graph=True)
        return [
            torch.zeros_like(rows) if grad is None else grad
            for grad, rows in zip(found, self.table, strict=True)
        ]

    def expected_gradient(self, loss_S: Tensor, sampler: "Tabular") -> list[Tensor]:
        """The exact gradient of E over the sampler's sequences of a per-sequence loss, by position."""
        return self.gradient((sampler.probability_S() * loss_S).sum())

    def true_gradient(self, reward_S: Tensor) -> list[Tensor]:
        """Of the loss -E_p[reward], by the definition: the probability itself is differentiated."""
        return self.gradient(-(self.logprobs_ST().sum(-1).exp() * reward_S).sum())


def flat(blocks: Sequence[Tensor]) -> Tensor:
    """One vector of a gradient's blocks."""
    return torch.cat([block.reshape(-1) for block in blocks])


def numerical_gradient(function: Callable[[], float], table: Sequence[Tensor], step: float = 1e-6) -> Tensor:
    """Central differences of a scalar function of the table, flat: what autograd is checked against."""
    slopes = []
    with torch.no_grad():
        for rows in table:
            entries = rows.view(-1)
            for place in range(entries.numel()):
                kept = entries[place].item()
                entries[place] = kept + step
                above = function()
                entries[place] = kept - step
                below = function()
                entries[place] = kept
                slopes.append((above - below) / (2 * step))
    return torch.tensor(slopes, dtype=torch.float64)
