"""Fake quantisers: the formats' own numbers, exact on what they hold, idempotent."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.proof.quantised import QUANTISERS, e2m1, e4m3, mx_scale, mxfp8, nvfp4

pytestmark = pytest.mark.oracle("9.9")
few = settings(deadline=None, max_examples=20)
seeds = st.integers(0, 2**31)
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def drawn(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randn(shape[0], 1, dtype=torch.float64, generator=generator).exp()
    return sizes * torch.randn(shape, dtype=torch.float64, generator=generator)


@few
@given(seeds)
@pytest.mark.parametrize("name", QUANTISERS)
def test_quantising_again_changes_nothing(name: str, seed: int) -> None:
    quantise = QUANTISERS[name]
    once = quantise(drawn(seed, 5, 200))
    assert torch.equal(quantise(once), once)
    assert not torch.equal(once, drawn(seed, 5, 200)), "and once does change something"


@few
@given(seeds)
@pytest.mark.parametrize("name", QUANTISERS)
def test_sign_symmetry_and_zeros(name: str, seed: int) -> None:
    quantise, weights = QUANTISERS[name], drawn(seed, 3, 70)
    assert torch.equal(quantise(-weights), -quantise(weights))
    assert torch.equal(quantise(torch.zeros(3, 70)), torch.zeros(3, 70))
    assert quantise(weights.float()).dtype == torch.float32


def test_e4m3_is_torchs_own() -> None:
    """Every float8 number is kept, and float32 numbers round as torch's cast rounds them."""
    of_format = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    of_format = of_format[of_format.isfinite()]
    assert torch.equal(e4m3(of_format), of_format)
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0)) * 100
    values = torch.cat([values, values / 1e4, values / 1e5]).clamp(-448, 448)
    assert torch.equal(e4m3(values.double()), values.to(torch.float8_e4m3fn).double())
    assert e4m3(torch.tensor([1e9], dtype=torch.float64)).item() == 448.0


def test_e2m1_is_the_nearest_of_its_eight_magnitudes() -> None:
    values = torch.linspace(-8, 8, 1601, dtype=torch.float64)
    distance = (values.abs().unsqueeze(1) - E2M1).abs()
    found = e2m1(values)
    assert torch.allclose((found - values).abs(), distance.amin(1), atol=1e-12)
    assert set(found.abs().tolist()) == set(E2M1.tolist())
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=torch.float64)
    assert e2m1(ties).tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0], "ties to the even mantissa"


@few
@given(seeds)
def test_mx_scale_is_a_power_of_two_that_leaves_the_largest_in_the_formats_top_octave(seed: int) -> None:
    blocks = drawn(seed, 7, 32)
    scale = mx_scale(blocks)
    assert torch.equal(scale, torch.exp2(scale.log2().round()))
    top = (blocks.abs() / scale).amax(-1)
    assert bool(((top >= 256) & (top < 512)).all())


@few
@given(seeds, st.integers(-20, 20))
def test_exact_on_values_that_the_format_holds(seed: int, exponent: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    e4m3_numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    e4m3_numbers = e4m3_numbers[e4m3_numbers.isfinite()]
    at = torch.randint(len(e4m3_numbers), (4, 64), generator=generator)
    weights = e4m3_numbers[at] * 2.0**exponent
    weights[:, ::32] = 448.0 * 2.0**exponent  # so that each block's scale is the one meant
    assert torch.equal(mxfp8(weights), weights)
    assert torch.equal(QUANTISERS["fp8 e4m3 128x128"](weights), weights)

    signs = torch.randint(2, (4, 64), generator=generator) * 2.0 - 1
    weights = signs * E2M1[torch.randint(8, (4, 64), generator=generator)]
    weights[:, ::16] = 6.0
    block_scale = torch.tensor([448.0, 1.0, 0.5, 26.0], dtype=torch.float64)  # numbers of E4M3
    weights *= block_scale.repeat(4, 1).T.repeat_interleave(16, 1) * 2.0**exponent
    assert torch.equal(nvfp4(weights), weights)

    weights = torch.randint(-127, 128, (4, 64), generator=generator).double() * 2.0**exponent
    weights[:, 0] = 127 * 2.0**exponent
    assert torch.equal(QUANTISERS["int8 per tensor"](weights), weights)
    assert torch.equal(QUANTISERS["int8 per row"](weights), weights)


def test_nvfp4_rounds_a_blocks_scale_to_e4m3() -> None:
    weights = torch.ones(1, 32, dtype=torch.float64)
    weights[0, 0], weights[0, 16] = 6 * 448.0, 6 * 1.03  # the tensor's scale is 1; 1.03 is no number of E4M3
    assert nvfp4(weights)[0, 16:18].tolist() == [6.0, 1.0]


@few
@given(seeds)
def test_error_is_within_half_a_step_and_grows_from_int8_to_fp4(seed: int) -> None:
    weights = drawn(seed, 4, 128)
    row = weights.abs().amax(-1, keepdim=True)
    assert bool(((QUANTISERS["int8 per row"](weights) - weights).abs() <= row / 127 / 2 * (1 + 1e-6)).all())
    error = {name: float((quantise(weights) - weights).norm()) for name, quantise in QUANTISERS.items()}
    assert error["int8 per row"] <= error["nvfp4 1x16"] and error["mxfp8 1x32"] <= error["nvfp4 1x16"]
