"""Random layers of types other than int8, and int8 layers of rare shapes, by number.

Types are int16 activations with int8 weights, float32, and float32 with int8 weights
("hybrid"). Shapes are transposed convolutions, filters of one row or column, and
depthwise convolutions with many filters per channel. A number always gives the same
layer; numbers start at `FIRST` to differ from those in random_layers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from tests.conformance.layer_parameters import factors_of, float32, power, weights_of
from tests.conformance.layer_shapes import (
    LINES,
    Shapes,
    convolution,
    depthwise,
    fully_connected,
    transposed,
)
from tests.conformance.random_layers import Maker, of_int8, on_powers_of_two, pair, pool

FIRST = 10_000
NEEDS_A_BIAS = "CONV_2D"
"""LiteRT rejects this operator without a bias."""
_FEW_TAPS = 500
"""Number of int16 x int8 products whose sum always fits 32 bits."""
_LEAST_FACTOR = 2.0**-30
_MANY = (16, 24, 31, 32, 64, 67)


def other_layer(number: int) -> ConformanceCase:
    """Return the layer of a number."""
    assert number >= FIRST
    rng = np.random.Generator(np.random.PCG64([number, 2025]))
    kind, make = _MAKERS[number % len(_MAKERS)]
    batch = make(rng, f"{kind}_{number}")
    is_quantized = batch.inputs[0] is not None and batch.inputs[0].scales
    return on_powers_of_two(batch) if number % 3 == 0 and is_quantized else batch


def _int16(draw: Callable[[np.random.Generator], Shapes]) -> Maker:
    """Return int16 activations, int8 weights and a bias of 64 bits, 32 bits or none."""

    def make(rng: np.random.Generator, name: str) -> ConformanceCase:
        shapes = draw(rng)
        w = weights_of(rng, shapes.w)
        taps = np.moveaxis(w.astype(np.int64), shapes.axis, 0).reshape(
            shapes.w[shapes.axis], -1
        )
        per_channel = shapes.builtin != "FULLY_CONNECTED" or rng.random() < 0.3
        factors = np.maximum(factors_of(rng, taps), _LEAST_FACTOR)
        used = factors if per_channel else factors[:1]
        x_scale, y_scale = power(rng, -16, -6), power(rng, -16, -6)
        scales = tuple(float32(factor * y_scale / x_scale) for factor in used)
        axis = shapes.axis if per_channel else None
        tensors = [
            CaseTensor(shapes.x, "int16", (x_scale,), (0,)),
            CaseTensor(shapes.w, "int8", scales, (0,) * len(scales), axis, w),
        ]
        kind = _bias_type(rng, shapes, taps)
        if kind:
            units = tuple(float32(scale * x_scale) for scale in scales)
            bias = _wide_bias(rng, taps, np.broadcast_to(used, len(taps)), kind)
            where = 0 if per_channel else None
            tensors.append(
                CaseTensor(bias.shape, kind, units, (0,) * len(units), where, bias)
            )
        return shapes.case(
            name, tensors, CaseTensor(shapes.y, "int16", (y_scale,), (0,))
        )

    return make


def _bias_type(rng: np.random.Generator, shapes: Shapes, taps: Array) -> str:
    """Return the bias type.

    32-bit biases require 32-bit sums and are not allowed everywhere.
    """
    may_be_short = (
        shapes.builtin in ("CONV_2D", "FULLY_CONNECTED") and taps.shape[1] <= _FEW_TAPS
    )
    if may_be_short and rng.random() < 0.3:
        shapes.options["quantized_bias_type"] = "int32"
        return "int32"
    return "int64" if rng.random() < 0.8 or shapes.builtin == NEEDS_A_BIAS else ""


def _wide_bias(
    rng: np.random.Generator, taps: Array, factors: Array, kind: str
) -> Array:
    reach = 1 << (28 if kind == "int32" else 33)
    bias = np.rint(rng.normal(0, 60 << 8, len(taps)) / factors)
    if rng.random() < 0.15:
        bias = rng.choice([-reach, reach, 0, 5], len(taps))
    room = (1 << 31) - 1 - (np.abs(taps).sum(axis=1) << 15)
    most = np.clip(room, 0, reach) if kind == "int32" else reach
    return np.clip(bias, -most, most).astype(kind)


def _float(draw: Callable[[np.random.Generator], Shapes]) -> Maker:
    def make(rng: np.random.Generator, name: str) -> ConformanceCase:
        shapes = draw(rng)
        w = rng.normal(0, power(rng, -6, 2), shapes.w).astype(np.float32)
        tensors = [
            CaseTensor(shapes.x, "float32"),
            CaseTensor(shapes.w, "float32", data=w),
        ]
        if rng.random() < 0.85 or shapes.builtin == NEEDS_A_BIAS:
            tensors.append(_float_bias(rng, shapes))
        return shapes.case(name, tensors, CaseTensor(shapes.y, "float32"))

    return make


def _float_bias(rng: np.random.Generator, shapes: Shapes) -> CaseTensor:
    count = shapes.w[shapes.axis]
    bias = rng.normal(0, power(rng, -6, 6), count).astype(np.float32)
    return CaseTensor((count,), "float32", data=bias)


def _hybrid(rng: np.random.Generator, name: str) -> ConformanceCase:
    """Return a layer with one weight scale or one per channel.

    No weight is -128: TFLite excludes it from symmetric tensors, and LiteRT's SSE code
    negates it incorrectly.
    """
    shapes = convolution(rng)
    weights = np.maximum(weights_of(rng, shapes.w), -127)
    count = shapes.w[0] if rng.random() < 0.5 else 1
    scales = tuple(float32(power(rng, -10, -3)) for _ in range(count))
    axis = 0 if count > 1 else None
    w = CaseTensor(shapes.w, "int8", scales, (0,) * count, axis, weights)
    tensors = [CaseTensor(shapes.x, "float32"), w, _float_bias(rng, shapes)]
    batch = shapes.case(name, tensors, CaseTensor(shapes.y, "float32"))
    return replace(batch, oracles=("litert",))


_MAKERS: tuple[tuple[str, Maker], ...] = (
    ("int16_conv", _int16(convolution)),
    ("float_conv", _float(convolution)),
    ("hybrid_conv", _hybrid),
    ("transposed", of_int8(transposed)),
    ("depthwise_many", of_int8(lambda rng: depthwise(rng, _MANY))),
    ("depthwise_line", of_int8(lambda rng: depthwise(rng, sizes=LINES))),
    ("conv_line", of_int8(lambda rng: convolution(rng, LINES))),
    ("int16_depthwise", _int16(depthwise)),
    ("float_depthwise", _float(depthwise)),
    ("int16_fully_connected", _int16(fully_connected)),
    ("float_fully_connected", _float(fully_connected)),
    ("int16_conv", _int16(convolution)),
    ("hybrid_conv", _hybrid),
    ("transposed", of_int8(transposed)),
    ("int16_transposed", _int16(transposed)),
    ("float_transposed", _float(transposed)),
    ("int16_average", pool("AVERAGE_POOL_2D", "int16")),
    ("float_average", pool("AVERAGE_POOL_2D", "float32")),
    ("int16_add", pair("ADD", "int16")),
    ("float_add", pair("ADD", "float32")),
)
