"""Requantization of int16 layers by a product's high word equals its definition."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT16, INT32, INT64, Array, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.int16x8 import (
    ExactScale,
    exact_scale,
    requant_with_16_bit_multiplier,
    requantize_sums,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules.int16_accumulation import _bind_high_word
from firmwright.schedules.registry import INTRINSICS

CHANNELS = 6
SEEDS = 24
SUMS = 24
"""Sums per channel: near ties, and up to the bounds of the channel."""
OUTPUT = TensorType((SUMS, CHANNELS), INT16, Quantization((1.0,), (0,)))


def factors_of(rng: np.random.Generator, low: float, spread: float) -> list[float]:
    """Return a factor per channel; a third of the layers has powers of two and ties."""
    exponents = rng.uniform(low, low + spread, CHANNELS)
    factors = 2.0 ** (np.rint(exponents) if rng.random() < 0.35 else exponents)
    return [float(factor) for factor in factors]


def sums_of(rng: np.random.Generator, factors: list[float], reach: Array) -> Array:
    near = np.rint(
        (rng.integers(-33000, 33000, (SUMS - 8, CHANNELS)) + 0.5) / np.array(factors)
    )
    near = near.astype(np.int64) + rng.integers(-1, 2, near.shape)
    ends = np.where(rng.random((8, CHANNELS)) < 0.5, reach, -reach)
    return np.clip(np.concatenate([near, ends]), -reach, reach)


def by_high_word(
    step: Requantization | ExactScale, sums: Array, reach: Array, dtype: DType
) -> Array | None:
    """Run the requantization in the interpreter; None if it is not offered."""
    kind = TensorType(sums.shape, dtype)
    b = Kernel("kernel", OpCall("none", (kind,), (OUTPUT,), NO_ATTRS, (None,)))
    bind = _bind_high_word(b, step, reach)
    if bind is None:
        return None
    with b.for_("channel", CHANNELS) as channel:
        finish = bind(b, channel)
        with b.for_("i", SUMS) as i:
            b.store(b.y, [i, channel], finish(b.load(b.input(0), [i, channel])))
    y = np.zeros(sums.shape, np.int16)
    arrays = {"x": sums.astype(dtype.np), "y": y}
    interpret(b.build(), arrays, INTRINSICS, constants=b.constants)
    return y


@pytest.mark.parametrize("activation", ["none", "relu6"])
def test_factors_of_53_bits_are_exact_for_32_bit_sums(activation: str) -> None:
    offered = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        low, spread = rng.uniform(-30, 1), float(rng.choice([0, 3, 9, 25]))
        factors = factors_of(rng, min(low, 2 - spread), spread)
        step = exact_scale(factors, OUTPUT, activation)
        left = max(int(np.log2(max(factors))) + 4, 0)
        reach = np.full(CHANNELS, ((1 << 31) - 1) >> left)
        sums = sums_of(rng, factors, reach)
        y = by_high_word(step, sums, reach, INT32)
        if y is not None:
            offered += 1
            np.testing.assert_array_equal(y, step.apply(sums, INT16))
    assert offered > SEEDS * 3 // 4


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_multipliers_of_16_bits_are_exact_for_64_bit_sums(activation: str) -> None:
    offered = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 1])
        spread = float(rng.choice([0, 3, 9, 20]))
        factors = factors_of(rng, rng.uniform(-30, -2 - spread), spread)
        step = requant_with_16_bit_multiplier(factors, OUTPUT, activation)
        reach = np.full(
            CHANNELS, int(2.0 ** min(rng.uniform(31, 40), 29 - np.log2(max(factors))))
        )
        sums = sums_of(rng, factors, reach)
        y = by_high_word(step, sums, reach, INT64)
        if y is not None:
            offered += 1
            np.testing.assert_array_equal(y, requantize_sums(step, sums, INT16))
    assert offered > SEEDS // 2


def test_sums_whose_product_exceeds_64_bits_take_the_definition() -> None:
    step = requant_with_16_bit_multiplier([1.0] * CHANNELS, OUTPUT, "none")
    reach = np.full(CHANNELS, 1 << 40)
    assert (
        by_high_word(step, np.zeros((SUMS, CHANNELS), np.int64), reach, INT64) is None
    )
