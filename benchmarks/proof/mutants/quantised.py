"""Fake quantisers: the scale, the rounding, the ends of a format."""

from benchmarks.proof.mutant import Mutant

TESTS = "tests/benchmarks/test_quantised.py"
FILE = "benchmarks/proof/quantised.py"

MUTANTS = [
    Mutant(
        name="rounded towards zero",
        file=FILE,
        old="((values / step).round() * step)",
        new="((values / step).trunc() * step)",
    ),
    Mutant(
        name="no subnormal numbers",
        file=FILE,
        old="(torch.frexp(values).exponent - 1).clamp(min=lowest_exponent)",
        new="torch.frexp(values).exponent - 1",
    ),
    Mutant(
        name="exponent of frexp taken for that of 1.m",
        file=FILE,
        old="(torch.frexp(values).exponent - 1)",
        new="(torch.frexp(values).exponent)",
    ),
    Mutant(
        name="infinite range",
        file=FILE,
        old="step).clamp(-largest, largest)",
        new="step)",
    ),
    Mutant(
        name="MX scale is not a power of two",
        file=FILE,
        old="return torch.where(largest > 0, torch.ldexp(torch.ones_like(largest), exponent), 1.0)",
        new="return torch.where(largest > 0, largest / E4M3_MAX, 1.0)",
    ),
    Mutant(
        name="MX scale one octave too large",
        file=FILE,
        old="torch.frexp(largest).exponent - 1 - 8",
        new="torch.frexp(largest).exponent - 8",
    ),
    Mutant(
        name="MX scale of signed values instead of magnitudes",
        file=FILE,
        old="largest = blocks.abs().amax(-1, keepdim=True)",
        new="largest = blocks.amax(-1, keepdim=True)",
    ),
    Mutant(
        name="int8 uses 128 steps",
        file=FILE,
        old="scale = _float32_scale(largest, INT8_MAX)",
        new="scale = _float32_scale(largest, INT8_MAX + 1)",
    ),
    Mutant(
        name="int8 per row with one scale for all",
        file=FILE,
        old="_int8(weights.double(), weights.double().abs().amax(-1, keepdim=True))",
        new="_int8(weights.double(), weights.double().abs().amax())",
    ),
    Mutant(
        name="FP4 block scale kept in full precision",
        file=FILE,
        old="scale = e4m3(blocks.abs().amax(-1, keepdim=True) / E2M1_MAX / whole) * whole",
        new="scale = blocks.abs().amax(-1, keepdim=True) / E2M1_MAX",
    ),
    Mutant(
        name="zero divided by a scale of zero",
        file=FILE,
        old="return scale.where(scale > 0, 1.0)",
        new="return scale",
    ),
]
