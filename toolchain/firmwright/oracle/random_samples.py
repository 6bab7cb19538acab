"""Samples for verification, a pure function of seed, index and input types.

Samples 0, 1 and 2 hold every input's zero point, largest and smallest value. Sample k >
2 is drawn from numpy's PCG64([seed, k]), inputs in the model's order: integers uniform
over the closed range, floats from N(0, 1) in double precision. The extremes of floats
are +1 and -1, and 2 and 1 of a type without negative numbers, which has the magnitudes.
A declared range replaces that of the dtype; floats are then uniform over it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT8_E8M0FNU, Array, find_dtype
from firmwright.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class SampleInput:
    """The properties of one model input; `value_range` includes both ends."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    zero_point: int = 0
    value_range: tuple[int, int] | None = None

    def extremes(self) -> tuple[int, int]:
        if self.value_range is not None:
            return self.value_range
        dtype = find_dtype(self.dtype.name)
        if dtype is FLOAT8_E8M0FNU:
            return 1, 2
        if dtype is not None:
            return (-1, 1) if dtype.has_fractions else (dtype.min, dtype.max)
        what = (
            f"input {self.name!r} has type {self.dtype}, "
            "for which no samples are defined."
        )
        raise UsageError(what, hint="pass your own inputs with --input.")


def make_sample(
    inputs: Sequence[SampleInput], index: int, seed: int = 0
) -> dict[str, Array]:
    if index < 0 or seed < 0:
        raise UsageError(f"sample {index} of seed {seed}: neither may be negative.")
    rng = np.random.Generator(np.random.PCG64([seed, index]))
    return {spec.name: _draw(spec, index, rng) for spec in inputs}


def make_samples(
    inputs: Sequence[SampleInput], count: int, seed: int = 0
) -> Iterator[dict[str, Array]]:
    return (make_sample(inputs, index, seed) for index in range(count))


def _draw(spec: SampleInput, index: int, rng: np.random.Generator) -> Array:
    low, high = spec.extremes()
    fixed = (min(max(spec.zero_point, low), high), high, low)
    if index < len(fixed):
        return np.full(spec.shape, fixed[index], spec.dtype)
    dtype = find_dtype(spec.dtype.name)
    assert dtype is not None, "checked by extremes"
    if dtype.has_fractions:
        if spec.value_range is None:
            reals = rng.standard_normal(spec.shape)
        else:
            reals = rng.uniform(low, high, spec.shape)
        reals = np.abs(reals) if dtype is FLOAT8_E8M0FNU else reals
        return np.asarray(reals).astype(spec.dtype)
    if spec.dtype.kind == "b":
        bits = rng.integers(low, high, spec.shape, np.uint8, endpoint=True)
        return np.asarray(bits, np.bool_)
    drawn = rng.integers(low, high, spec.shape, dtype.stored.np.type, endpoint=True)
    return np.asarray(drawn).astype(spec.dtype)
