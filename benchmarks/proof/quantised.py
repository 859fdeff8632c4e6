"""Weights as a low-precision sampler holds them: rounded to a format, back in the dtype they came in.

All arithmetic is in float64, so that a value the format can hold comes back bit for bit. Scales are those of
the formats (methods.md 9(b)): float32 for int8 and FP8 blocks, powers of two for MX (OCP MX v1.0), E4M3 under
one float32 for NVFP4.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

Quantiser = Callable[[Tensor], Tensor]

E4M3_MANTISSA, E4M3_LOWEST_EXPONENT, E4M3_MAX = 3, -6, 448.0
E2M1_MANTISSA, E2M1_LOWEST_EXPONENT, E2M1_MAX = 1, 0, 6.0
INT8_MAX = 127.0
FP8_BLOCK, MX_BLOCK, FP4_BLOCK = 128, 32, 16


def int8_tensor(weights: Tensor) -> Tensor:
    """Symmetric int8, one scale: the largest magnitude is 127."""
    return _int8(weights.double(), weights.double().abs().amax()).to(weights.dtype)


def int8_rows(weights: Tensor) -> Tensor:
    """Symmetric int8, one scale for each row of the last dimension."""
    return _int8(weights.double(), weights.double().abs().amax(-1, keepdim=True)).to(weights.dtype)


def fp8_blocks(weights_RC: Tensor) -> Tensor:
    """E4M3 with one float32 scale for each block of 128 x 128."""
    rows, columns = weights_RC.shape
    padded = pad(weights_RC.double(), (0, -columns % FP8_BLOCK, 0, -rows % FP8_BLOCK))
    blocks = padded.unflatten(1, (-1, FP8_BLOCK)).unflatten(0, (-1, FP8_BLOCK))
    scale = _float32_scale(blocks.abs().amax((1, 3), keepdim=True), E4M3_MAX)
    rounded = e4m3(blocks / scale) * scale
    return rounded.flatten(2, 3).flatten(0, 1)[:rows, :columns].to(weights_RC.dtype)


def mxfp8(weights: Tensor) -> Tensor:
    """E4M3 with one power of two for each 32 neighbours of the last dimension; saturates at 448."""
    blocks = _neighbours(weights.double(), MX_BLOCK)
    rounded = e4m3(blocks / mx_scale(blocks)) * mx_scale(blocks)
    return rounded.flatten(-2)[..., : weights.shape[-1]].to(weights.dtype)


def mx_scale(blocks: Tensor) -> Tensor:
    """2 ** (exponent of the largest magnitude of a block - 8): 8 is the exponent of E4M3's largest number."""
    largest = blocks.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 1 - 8
    return torch.where(largest > 0, torch.ldexp(torch.ones_like(largest), exponent), 1.0)


def nvfp4(weights: Tensor) -> Tensor:
    """E2M1 with an E4M3 scale for each 16 neighbours, under one float32 scale of the whole tensor."""
    whole = _float32_scale(weights.double().abs().amax(), E4M3_MAX * E2M1_MAX)
    blocks = _neighbours(weights.double(), FP4_BLOCK)
    scale = e4m3(blocks.abs().amax(-1, keepdim=True) / E2M1_MAX / whole) * whole
    rounded = e2m1(torch.where(scale > 0, blocks / scale.where(scale > 0, 1.0), 0.0)) * scale
    return rounded.flatten(-2)[..., : weights.shape[-1]].to(weights.dtype)


def e4m3(values: Tensor) -> Tensor:
    """The nearest number of FP8 E4M3 (finite variant), ties to even, saturating at 448."""
    return _minifloat(values, E4M3_MANTISSA, E4M3_LOWEST_EXPONENT, E4M3_MAX)


def e2m1(values: Tensor) -> Tensor:
    """The nearest number of FP4 E2M1 (0, .5, 1, 1.5, 2, 3, 4, 6), ties to even, saturating at 6."""
    return _minifloat(values, E2M1_MANTISSA, E2M1_LOWEST_EXPONENT, E2M1_MAX)


QUANTISERS: dict[str, Quantiser] = {
    "int8 per tensor": int8_tensor,
    "int8 per row": int8_rows,
    "fp8 e4m3 128x128": fp8_blocks,
    "mxfp8 1x32": mxfp8,
    "nvfp4 1x16": nvfp4,
}


def _int8(weights: Tensor, largest: Tensor) -> Tensor:
    scale = _float32_scale(largest, INT8_MAX)
    return (weights / scale).round().clamp(-INT8_MAX, INT8_MAX) * scale


def _float32_scale(largest: Tensor, becomes: float) -> Tensor:
    """largest / becomes as float32 holds it, 1 where there is nothing to scale."""
    scale = (largest / becomes).float().double()
    return scale.where(scale > 0, 1.0)


def _neighbours(weights: Tensor, count: int) -> Tensor:
    return pad(weights, (0, -weights.shape[-1] % count)).unflatten(-1, (-1, count))


def _minifloat(values: Tensor, mantissa: int, lowest_exponent: int, largest: float) -> Tensor:
    exponent = (torch.frexp(values).exponent - 1).clamp(min=lowest_exponent)
    step = torch.ldexp(torch.ones_like(values), exponent - mantissa)
    return ((values / step).round() * step).clamp(-largest, largest)
