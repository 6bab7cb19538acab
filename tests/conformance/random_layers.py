"""Random int8 layers in TFLite's terms, generated from a number.

A number always gives the same layer. Layers vary in windows, strides, dilations,
channels, paddings, zero points, scales over many orders of magnitude (powers of two in
every third layer), weights with extreme values, and dominant biases. Numbers from
`OTHERS` on are layers of other types and rare shapes (random_other_layers.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from tests.conformance.layer_parameters import (
    ACTIVATIONS,
    CHANNELS,
    MOST_ELEMENTS,
    bias_of,
    factors_of,
    float32,
    int8_tensor,
    pick,
    power,
    tensor,
    weights_of,
    zero_point,
)
from tests.conformance.layer_shapes import (
    Shapes,
    convolution,
    depthwise,
    even_convolution,
    fitting,
    fully_connected,
)

Maker: TypeAlias = Callable[[np.random.Generator, str], ConformanceCase]


def layer(number: int) -> ConformanceCase:
    """Return the layer of a number."""
    rng = np.random.Generator(np.random.PCG64([number, 2024]))
    kind, make = _MAKERS[number % len(_MAKERS)]
    batch = make(rng, f"{kind}_{number}")
    return on_powers_of_two(batch) if number % 3 == 0 else batch


def on_powers_of_two(case: ConformanceCase) -> ConformanceCase:
    """Return the layer with scales rounded to powers of two: ties become common."""
    inputs = [
        each and replace(each, scales=_powers(each.scales)) for each in case.inputs
    ]
    if len(inputs) == 3 and inputs[0] and inputs[1] and inputs[2]:
        scales = tuple(inputs[0].scales[0] * scale for scale in inputs[1].scales)
        inputs[2] = replace(inputs[2], scales=scales)
    outputs = tuple(replace(each, scales=_powers(each.scales)) for each in case.outputs)
    return replace(case, inputs=tuple(inputs), outputs=outputs)


def _powers(scales: Sequence[float]) -> tuple[float, ...]:
    return tuple(2.0 ** round(math.log2(scale)) for scale in scales)


def of_int8(draw: Callable[[np.random.Generator], Shapes]) -> Maker:
    return lambda rng, name: _drawn(rng, name, draw(rng))


def _drawn(rng: np.random.Generator, name: str, shapes: Shapes) -> ConformanceCase:
    """Return an int8 layer of the given shapes."""
    builtin, axis = shapes.builtin, shapes.axis
    count = shapes.w[axis]
    w = weights_of(rng, shapes.w)
    taps = np.moveaxis(w.astype(np.int64), axis, 0).reshape(count, -1)
    factors = factors_of(rng, taps)
    per_channel = builtin != "FULLY_CONNECTED" or (rng.random() < 0.3 and count > 1)
    if not per_channel or rng.random() < 0.1:
        factors = np.full(count, factors[0])
    x_scale = power(rng, -8, 2)
    y_scale, y_point = _result(rng, shapes.activation)
    used = factors if per_channel else factors[:1]
    scales = tuple(float32(factor * y_scale / x_scale) for factor in used)
    where = axis if per_channel else None
    tensors: list[CaseTensor] = [
        int8_tensor(rng, shapes.x, x_scale),
        CaseTensor(shapes.w, "int8", scales, (0,) * len(scales), where, w),
    ]
    if builtin != "FULLY_CONNECTED" or rng.random() < 0.8:
        bias = bias_of(rng, taps, factors)
        biases = tuple(float32(scale * x_scale) for scale in scales)
        kind = (biases, (0,) * len(biases), 0 if per_channel else None)
        tensors.append(CaseTensor((count,), "int32", *kind, bias))
    y = int8_tensor(rng, shapes.y, y_scale, y_point)
    return shapes.case(name, tensors, y)


def _result(rng: np.random.Generator, activation: str) -> tuple[float, int]:
    """Return scale and zero point of a result.

    Most leave several values after the activation.
    """
    if rng.random() < 0.15:
        return power(rng, -8, 4), zero_point(rng)
    match activation:
        case "NONE":
            return power(rng, -8, 4), zero_point(rng)
        case "RELU":
            return power(rng, -8, 4), pick(
                rng, (-128, -128, int(rng.integers(-128, 60)))
            )
        case "RELU6":
            return power(rng, -8, -3), pick(
                rng, (-128, -128, int(rng.integers(-128, 30)))
            )
        case _:
            return power(rng, -8, -3), int(rng.integers(-128, 128))


def pool(builtin: str, dtype: str = "int8") -> Maker:
    def make(rng: np.random.Generator, name: str) -> ConformanceCase:
        channels, _, lengths, options = fitting(rng, lambda c: c, depthwise=True)
        height, width, rows, columns, high, wide = lengths
        # Without dilation a window of that size may leave more positions, never fewer.
        reach = (
            (rows - 1) * int(str(options.pop("dilation_h_factor"))) + 1,
            (columns - 1) * int(str(options.pop("dilation_w_factor"))) + 1,
        )
        options |= {"filter_height": reach[0], "filter_width": reach[1]}
        x = tensor(rng, (1, height, width, channels), power(rng, -8, 2), dtype)
        y = CaseTensor((1, high, wide, channels), dtype, x.scales, x.zero_points)
        return ConformanceCase(name, builtin, (x,), (y,), options)

    return make


def pair(builtin: str, dtype: str = "int8") -> Maker:
    def make(rng: np.random.Generator, name: str) -> ConformanceCase:
        a_shape, b_shape = _pair_shapes(rng)
        shape = tuple(np.broadcast_shapes(a_shape, b_shape))
        first = power(rng, -8, 2)
        second = first if rng.random() < 0.2 else float32(first * power(rng, -6, 6))
        if builtin == "MUL":
            third = float32(first * second * power(rng, 2, 9))
        else:
            third = float32(max(first, second) * power(rng, -3, 3))
        a, b = (
            tensor(rng, size, scale, dtype)
            for size, scale in ((a_shape, first), (b_shape, second))
        )
        if dtype == "int8" and rng.random() < 0.15:
            data = rng.integers(-128, 128, b_shape).astype(np.int8)
            b = CaseTensor(b_shape, "int8", b.scales, b.zero_points, None, data)
        options: dict[str, object] = {
            "fused_activation_function": pick(rng, ACTIVATIONS)
        }
        if dtype == "int16":
            options["pot_scale_int16"] = False  # any scales, not powers of two alone
        return ConformanceCase(
            name, builtin, (a, b), (tensor(rng, shape, third, dtype),), options
        )

    return make


def _pair_shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    channels = pick(rng, CHANNELS)
    most = min(12, math.isqrt(MOST_ELEMENTS // channels))
    shape = (
        1,
        int(rng.integers(1, most + 1)),
        int(rng.integers(1, most + 1)),
        channels,
    )
    other: tuple[int, ...] = shape
    match int(rng.integers(10)):
        case 0:
            other = (channels,)
        case 1:
            other = (1, 1, 1, channels)
        case 2:
            other = (1, shape[1], shape[2], 1)
    return shape, other


def _mean(rng: np.random.Generator, name: str) -> ConformanceCase:
    channels = pick(rng, CHANNELS)
    most = min(16, math.isqrt(MOST_ELEMENTS // channels))
    height, width = (int(rng.integers(1, most + 1)) for _ in "hw")
    keep = bool(rng.random() < 0.5)
    axes = pick(rng, ((1, 2), (1, 2), (1, 2), (2,), (3,)))
    shape = (1, height, width, channels)
    reduced = tuple(
        1 if axis in axes else length
        for axis, length in enumerate(shape)
        if keep or axis not in axes
    )
    scale = power(rng, -8, 2)
    x, y = (
        int8_tensor(rng, shape, scale),
        int8_tensor(rng, reduced, float32(scale * power(rng, -3, 1))),
    )
    where = CaseTensor((len(axes),), "int32", data=np.array(axes, np.int32))
    return ConformanceCase(name, "MEAN", (x, where), (y,), {"keep_dims": keep})


def _softmax(rng: np.random.Generator, name: str) -> ConformanceCase:
    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 60)))
    x = int8_tensor(rng, shape, power(rng, -9, 1))
    y = CaseTensor(shape, "int8", (1 / 256,), (-128,))
    return ConformanceCase(name, "SOFTMAX", (x,), (y,), {"beta": 1.0})


_MAKERS: tuple[tuple[str, Maker], ...] = (
    ("conv", of_int8(convolution)),
    ("depthwise", of_int8(depthwise)),
    ("conv", of_int8(convolution)),
    ("fully_connected", of_int8(fully_connected)),
    ("conv", of_int8(convolution)),
    ("depthwise", of_int8(depthwise)),
    ("add", pair("ADD")),
    ("average", pool("AVERAGE_POOL_2D")),
    ("conv", of_int8(convolution)),
    ("depthwise", of_int8(depthwise)),
    ("fully_connected", of_int8(fully_connected)),
    ("max", pool("MAX_POOL_2D")),
    ("conv", of_int8(convolution)),
    ("depthwise", of_int8(depthwise)),
    ("sub", pair("SUB")),
    ("mul", pair("MUL")),
    ("conv", of_int8(even_convolution)),
    ("depthwise", of_int8(depthwise)),
    ("mean", _mean),
    ("softmax", _softmax),
)
