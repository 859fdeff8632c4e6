"""Another policy's next-token distribution, as centering and distillation ask for it: a block at a time.

Nothing here carries a gradient. The temperature of that policy is applied where its log-probs are made; a
sampler that filtered its support (top-p, top-k) enters with that support, -inf outside of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stages.errors import GuardError
from stages.estimators.blockwise import per_position, scaled


class Distribution(Protocol):
    """A policy that can be asked for its whole distribution at some positions."""

    def logprobs_NV(self, places_N: Tensor) -> Tensor:
        """Log-probs [N, V], detached, in at least float32, at these places of the flattened [B * T]."""
        ...


@dataclass(frozen=True)
class FromLogits:
    """softmax(logits / temperature). `logits_BTV` are another [B, T, V]: use it where that fits in memory.

    `temperature`: a number, or [B] for one of each row.
    """

    logits_BTV: Tensor
    temperature: float | Tensor = 1.0

    @torch.no_grad()
    def logprobs_NV(self, places_N: Tensor) -> Tensor:
        scale = per_position(self.temperature, self.logits_BTV[..., 0])
        return _logprobs_NV(self.logits_BTV.flatten(0, 1)[places_N], scale, places_N)


@dataclass(frozen=True)
class FromHidden:
    """softmax(head(hidden states) / temperature): no logits exist beyond those of one block.

    `states_BTD`: the last hidden states of that policy. `head`: [N, D] -> logits [N, V], its output layer.
    `temperature`: a number, or [B] for one of each row.
    """

    states_BTD: Tensor
    head: Callable[[Tensor], Tensor]
    temperature: float | Tensor = 1.0

    @torch.no_grad()
    def logprobs_NV(self, places_N: Tensor) -> Tensor:
        scale = per_position(self.temperature, self.states_BTD[..., 0])
        return _logprobs_NV(self.head(self.states_BTD.flatten(0, 1)[places_N]), scale, places_N)


@dataclass(frozen=True)
class TopHead:
    """The sampler's most likely tokens at each position, as it recorded them while sampling.

    `ids_BTK`: int64. `logprobs_BTK`: under the sampler's whole distribution, so that they sum to the head's
    mass; -inf where a position has fewer than K entries, whose ids are then never read. The sampled token
    belongs to the head only if it is among the K most likely: a head that depends on the sample centres by
    something that depends on the action. Raises GuardError for other shapes or types.
    """

    ids_BTK: Tensor
    logprobs_BTK: Tensor

    def __post_init__(self) -> None:
        if self.ids_BTK.shape != self.logprobs_BTK.shape or self.ids_BTK.ndim != 3:
            raise GuardError(
                f"a recorded head needs ids and log-probs of one shape [rows, tokens, entries], got "
                f"{list(self.ids_BTK.shape)} and {list(self.logprobs_BTK.shape)}"
            )
        if self.ids_BTK.dtype != torch.int64:
            raise GuardError(f"a recorded head needs int64 token ids, got {self.ids_BTK.dtype}")

    @torch.no_grad()
    def at(self, places_N: Tensor) -> tuple[Tensor, Tensor]:
        """(ids [N, K], log-probs [N, K]) at these places; id 0 where there is no entry."""
        logprobs_NK = self.logprobs_BTK.flatten(0, 1)[places_N]
        ids_NK = self.ids_BTK.flatten(0, 1)[places_N]
        return ids_NK.where(logprobs_NK > float("-inf"), ids_NK.new_zeros(())), logprobs_NK


def _logprobs_NV(logits_NV: Tensor, temperature: float | Tensor, places_N: Tensor) -> Tensor:
    precise_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    return scaled(precise_NV, temperature, places_N).log_softmax(-1)
