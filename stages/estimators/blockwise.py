"""Functions of the next-token distribution at trained positions, a block of positions at a time.

A function of one position's logits is evaluated without a graph and once more in the backward pass, so
nothing of the size [B, T, V] exists besides the logits and their gradient: no scaled copy, no log-softmax.
Positions outside the mask cost nothing and have exactly zero value and gradient.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

PositionFunction = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
"""(logits_NV of a block, at least float32; places_N of its positions in flattened [B * T]) -> tensors [N]."""

BLOCK_ELEMENTS = 2**21
"""Logits evaluated at once: 8 MB in float32, so that a block's temporaries stay near the cache."""


def at_positions(function: PositionFunction, logits_BTV: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
    """The function's values as tensors [B, T], 0 where the mask is false; differentiable in the logits.

    The function must treat positions independently of each other, and must be free of side effects: it is
    called again for the gradient. Other tensors that it uses are constants.
    """
    shape = mask_BT.shape
    places_N = mask_BT.reshape(-1).nonzero().squeeze(1)
    values = _AtPositions.apply(function, logits_BTV.flatten(0, 1), places_N)
    return tuple(value.view(shape) for value in values)


def target_logprobs_BT(
    logits_BTV: Tensor, target_BT: Tensor, mask_BT: Tensor, temperature: float | Tensor = 1.0
) -> Tensor:
    """Log-probability of each target under softmax(logits / temperature), 0 where the mask is false.

    `temperature`: a number, or [B] for one of each row.
    """
    targets = target_BT.reshape(-1)
    scale = per_position(temperature, mask_BT)

    def function(logits_NV: Tensor, places_N: Tensor) -> tuple[Tensor, ...]:
        scaled_NV = scaled(logits_NV, scale, places_N)
        return (picked_logprob_N(scaled_NV, targets[places_N]),)

    return at_positions(function, logits_BTV, mask_BT)[0]


def picked_logprob_N(logits_NV: Tensor, target_N: Tensor) -> Tensor:
    """log softmax(logits) at the targets."""
    return logits_NV.gather(-1, target_N.unsqueeze(-1)).squeeze(-1) - logits_NV.logsumexp(-1)


def per_position(temperature: float | Tensor, mask_BT: Tensor) -> Tensor | float:
    """A row's temperature [B] as one of every flattened position; a number stays a number."""
    if isinstance(temperature, Tensor):
        return temperature.to(mask_BT.device).unsqueeze(1).expand(mask_BT.shape).reshape(-1)
    return temperature


def scaled(logits_NV: Tensor, temperature: Tensor | float, places_N: Tensor) -> Tensor:
    """The block's logits at the temperature that `per_position` gave."""
    if isinstance(temperature, Tensor):
        return logits_NV / temperature[places_N].unsqueeze(1).to(logits_NV.dtype)
    return logits_NV if temperature == 1.0 else logits_NV / temperature


def blocks(places_N: Tensor, width: int) -> Iterator[Tensor]:
    """Parts of the positions whose logits of `width` entries fill at most one block."""
    yield from places_N.split(max(1, BLOCK_ELEMENTS // width))


class _AtPositions(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: PositionFunction, logits_MV: Tensor, places_N: Tensor
    ) -> tuple[Tensor, ...]:
        precise = torch.promote_types(logits_MV.dtype, torch.float32)
        parts: list[tuple[Tensor, ...]] = []
        for places in blocks(places_N, logits_MV.shape[1]):
            parts.append(function(logits_MV[places].to(precise), places))
        if not parts:  # to learn how many values there are
            parts.append(function(logits_MV[:0].to(precise), places_N))
        values = []
        for part in zip(*parts, strict=True):
            value = logits_MV.new_zeros(logits_MV.shape[0], dtype=precise)
            value[places_N] = torch.cat(part)
            values.append(value)
        ctx.function, ctx.precise = function, precise
        ctx.save_for_backward(logits_MV, places_N)
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, None]:
        logits_MV, places_N = ctx.saved_tensors
        gradient_MV = torch.zeros_like(logits_MV)
        for places in blocks(places_N, logits_MV.shape[1]):
            with torch.enable_grad():
                logits_NV = logits_MV[places].to(ctx.precise).requires_grad_()
                values = ctx.function(logits_NV, places)
            moving = [place for place, value in enumerate(values) if value.requires_grad]
            if moving:
                (block_NV,) = torch.autograd.grad(
                    [values[place] for place in moving],
                    logits_NV,
                    [slopes[place][places] for place in moving],
                )
                gradient_MV[places] = block_NV.to(gradient_MV.dtype)
        return None, gradient_MV, None
