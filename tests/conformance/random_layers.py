"""Single quantised layers drawn by a number, as TFLite has them: odd sizes, tails and extremes.

In: a number. Out: a `Case`, the same from run to run and whatever else is drawn. What may differ
between layers of one operator does: windows, strides, dilations, channels, paddings, zero points,
scales over many orders of magnitude (of each third layer powers of two), weights of one extreme
value, biases that nothing outweighs.
Limits: a layer and its result stay small, since dozens share a firmware on the smallest board; no
accumulator can leave 32 bits, which the importer refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from firmwright.ir.graph.opdef import Array, Case, CaseTensor

MOST_ELEMENTS = 1200
"""Of a layer's input and of its output."""
MOST_WEIGHTS = 4000
_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 67)
_WINDOWS = ((1, 1), (1, 1), (3, 3), (3, 3), (1, 3), (3, 1), (2, 2), (5, 5), (4, 3), (7, 1), (1, 6))
_ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")
_REACH = (1 << 31) - 1
_T = TypeVar("_T")


def layer(number: int) -> Case:
    """The layer of that number."""
    rng = np.random.Generator(np.random.PCG64([number, 2024]))
    kind, make = _MAKERS[number % len(_MAKERS)]
    made = make(rng, f"{kind}_{number}")
    return _on_powers_of_two(made) if number % 3 == 0 else made


def _on_powers_of_two(case: Case) -> Case:
    """The layer with each scale at the nearest power of two: ties are common then."""
    inputs = [each and replace(each, scales=_powers(each.scales)) for each in case.inputs]
    if len(inputs) == 3 and inputs[0] and inputs[1] and inputs[2]:
        scales = tuple(inputs[0].scales[0] * scale for scale in inputs[1].scales)
        inputs[2] = replace(inputs[2], scales=scales)
    outputs = tuple(replace(each, scales=_powers(each.scales)) for each in case.outputs)
    return replace(case, inputs=tuple(inputs), outputs=outputs)


def _powers(scales: Sequence[float]) -> tuple[float, ...]:
    return tuple(2.0 ** round(math.log2(scale)) for scale in scales)


def _pick(rng: np.random.Generator, values: Sequence[_T]) -> _T:
    return values[int(rng.integers(len(values)))]


def _float32(value: float) -> float:
    return float(np.float32(value))


def _power(rng: np.random.Generator, low: float, high: float) -> float:
    """Between 2^low and 2^high, alike in each octave."""
    return _float32(2.0 ** rng.uniform(low, high))


def _point(rng: np.random.Generator) -> int:
    return _pick(rng, (-128, -128, 127, 0, int(rng.integers(-128, 128))))


def _tensor(
    rng: np.random.Generator, shape: tuple[int, ...], scale: float, point: int | None = None
) -> CaseTensor:
    return CaseTensor(shape, "int8", (scale,), (_point(rng) if point is None else point,))


# ---- windows -----------------------------------------------------------------------------------


def _window(rng: np.random.Generator, channels: int) -> tuple[tuple[int, ...], dict[str, object]]:
    """Rows, columns, size of the window and rows, columns of the result; and TFLite's options."""
    size = _pick(rng, (*_WINDOWS, (int(rng.integers(1, 6)), int(rng.integers(1, 6)))))
    stride = _pick(rng, ((1, 1), (1, 1), (2, 2), (1, 2), (2, 1), (3, 3), (3, 2)))
    dilation = (int(rng.integers(1, 4)), int(rng.integers(1, 4))) if rng.random() < 0.12 else (1, 1)
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    most = max(4, math.isqrt(MOST_ELEMENTS // channels))
    same = bool(rng.random() < 0.55)
    lengths, results = [], []
    for span, step in zip(reach, stride, strict=True):
        least = 1 if same else span
        length = int(rng.integers(least, max(least, min(most, 3 * span + 6)) + 1))
        lengths.append(length)
        results.append(-(-length // step) if same else (length - span) // step + 1)
    options: dict[str, object] = {
        "padding": "SAME" if same else "VALID",
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
        "fused_activation_function": _pick(rng, _ACTIVATIONS),
    }
    return (*lengths, *size, *results), options


def _fitting(
    rng: np.random.Generator, outputs: Callable[[int], int], *, depthwise: bool = False
) -> tuple[int, int, tuple[int, ...], dict[str, object]]:
    """Channels, outputs, lengths and options whose tensors are small enough."""
    while True:
        channels = _pick(rng, _CHANNELS)
        count = outputs(channels)
        lengths, options = _window(rng, max(channels, count))
        height, width, rows, columns, high, wide = lengths
        weights = rows * columns * count * (1 if depthwise else channels)
        largest = max(height * width * channels, high * wide * count)
        if weights <= MOST_WEIGHTS and largest <= MOST_ELEMENTS:
            return channels, count, lengths, options


def _convolution(rng: np.random.Generator, name: str) -> Case:
    channels, count, lengths, options = _fitting(rng, lambda _: _pick(rng, _CHANNELS))
    height, width, rows, columns, high, wide = lengths
    batch = 2 if rng.random() < 0.05 and height * width * channels * 2 <= MOST_ELEMENTS else 1
    x = (batch, height, width, channels)
    w, y = (count, rows, columns, channels), (batch, high, wide, count)
    return _weighted(rng, name, "CONV_2D", x, w, y, 0, options)


def _even_convolution(rng: np.random.Generator, name: str) -> Case:
    """3 x 3, with counts of channels, rows and columns that suit schedules by tiles."""
    channels, count = _pick(rng, (8, 12, 16, 20)), _pick(rng, (2, 4, 6, 8, 10, 16))
    high, wide = 2 * int(rng.integers(1, 4)), 8
    same = bool(rng.random() < 0.6) or (high + 2) * (wide + 2) * channels > MOST_ELEMENTS
    more = 0 if same else 2
    options: dict[str, object] = {
        "padding": "SAME" if same else "VALID",
        "stride_h": 1,
        "stride_w": 1,
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        "fused_activation_function": _pick(rng, _ACTIVATIONS),
    }
    x, y = (1, high + more, wide + more, channels), (1, high, wide, count)
    return _weighted(rng, name, "CONV_2D", x, (count, 3, 3, channels), y, 0, options)


def _depthwise(rng: np.random.Generator, name: str) -> Case:
    multiplier = _pick(rng, (1, 1, 1, 1, 2, 3, 4, 8))
    channels, count, lengths, options = _fitting(rng, lambda c: c * multiplier, depthwise=True)
    height, width, rows, columns, high, wide = lengths
    options["depth_multiplier"] = multiplier
    x, w, y = (1, height, width, channels), (1, rows, columns, count), (1, high, wide, count)
    return _weighted(rng, name, "DEPTHWISE_CONV_2D", x, w, y, 3, options)


def _pool(builtin: str) -> Callable[[np.random.Generator, str], Case]:
    def make(rng: np.random.Generator, name: str) -> Case:
        channels, _, lengths, options = _fitting(rng, lambda c: c, depthwise=True)
        height, width, rows, columns, high, wide = lengths
        # Without dilation a window of that size may leave more positions, never fewer.
        reach = (
            (rows - 1) * int(str(options.pop("dilation_h_factor"))) + 1,
            (columns - 1) * int(str(options.pop("dilation_w_factor"))) + 1,
        )
        options |= {"filter_height": reach[0], "filter_width": reach[1]}
        x = _tensor(rng, (1, height, width, channels), _power(rng, -8, 2))
        y = CaseTensor((1, high, wide, channels), "int8", x.scales, x.zero_points)
        return Case(name, builtin, (x,), (y,), options)

    return make


# ---- weights -----------------------------------------------------------------------------------


def _fully_connected(rng: np.random.Generator, name: str) -> Case:
    depth = int(_pick(rng, (rng.integers(1, 20), rng.integers(1, 300), 8 * rng.integers(1, 33))))
    count = min(int(rng.integers(1, 70)), MOST_WEIGHTS // depth)
    batch = _pick(rng, (1, 1, 1, 2, 3)) if depth * 3 <= MOST_ELEMENTS else 1
    options: dict[str, object] = {
        "fused_activation_function": _pick(rng, _ACTIVATIONS),
        "keep_num_dims": False,
    }
    x, w, y = (batch, depth), (count, depth), (batch, count)
    return _weighted(rng, name, "FULLY_CONNECTED", x, w, y, 0, options)


def _weighted(
    rng: np.random.Generator,
    name: str,
    builtin: str,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    y_shape: tuple[int, ...],
    axis: int,
    options: Mapping[str, object],
) -> Case:
    count = w_shape[axis]
    w = _weights(rng, w_shape)
    taps = np.moveaxis(w.astype(np.int64), axis, 0).reshape(count, -1)
    factors = _factors(rng, taps)
    per_channel = builtin != "FULLY_CONNECTED" or (rng.random() < 0.3 and count > 1)
    if not per_channel or rng.random() < 0.1:
        factors = np.full(count, factors[0])
    x_scale = _power(rng, -8, 2)
    y_scale, y_point = _result(rng, str(options["fused_activation_function"]))
    used = factors if per_channel else factors[:1]
    scales = tuple(_float32(factor * y_scale / x_scale) for factor in used)
    where = axis if per_channel else None
    tensors: list[CaseTensor] = [
        _tensor(rng, x_shape, x_scale),
        CaseTensor(w_shape, "int8", scales, (0,) * len(scales), where, w),
    ]
    if builtin != "FULLY_CONNECTED" or rng.random() < 0.8:
        bias = _bias(rng, taps, factors)
        biases = tuple(_float32(scale * x_scale) for scale in scales)
        kind = (biases, (0,) * len(biases), 0 if per_channel else None)
        tensors.append(CaseTensor((count,), "int32", *kind, bias))
    y = _tensor(rng, y_shape, y_scale, y_point)
    return Case(name, builtin, tuple(tensors), (y,), options)


def _result(rng: np.random.Generator, activation: str) -> tuple[float, int]:
    """Scale and zero point of a result: most are such that its activation leaves some values."""
    if rng.random() < 0.15:
        return _power(rng, -8, 4), _point(rng)
    match activation:
        case "NONE":
            return _power(rng, -8, 4), _point(rng)
        case "RELU":
            return _power(rng, -8, 4), _pick(rng, (-128, -128, int(rng.integers(-128, 60))))
        case "RELU6":
            return _power(rng, -8, -3), _pick(rng, (-128, -128, int(rng.integers(-128, 30))))
        case _:
            return _power(rng, -8, -3), int(rng.integers(-128, 128))


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    kind = rng.random()
    if kind < 0.06:
        return np.full(shape, _pick(rng, (-128, 127, 0, 1)), np.int8)
    if kind < 0.12:
        return np.where(rng.random(shape) < 0.5, -128, 127).astype(np.int8)
    if kind < 0.2:
        return (rng.integers(-128, 128, shape) * (rng.random(shape) < 0.2)).astype(np.int8)
    if kind < 0.3:
        return rng.integers(-3, 4, shape).astype(np.int8)
    least = -128 if kind < 0.55 else -127
    return rng.integers(least, 128, shape).astype(np.int8)


def _factors(rng: np.random.Generator, taps: Array) -> Array:
    """Output steps for one of the accumulator, a channel each: most let outputs spread."""
    count = len(taps)
    if rng.random() < 0.12:
        return 2.0 ** rng.uniform(-34, 2.5, count)
    spread = 74.0 * np.sqrt((taps**2).sum(axis=1) + 1.0)
    factors = 45.0 / spread * 2.0 ** rng.uniform(-1.5, 1.5, count)
    if rng.random() < 0.15:
        factors *= 2.0 ** rng.uniform(-9, 3)
    return np.minimum(factors, 5.5)


def _bias(rng: np.random.Generator, taps: Array, factors: Array) -> Array:
    """Within 32 bits together with what the weights make, and with any left shift."""
    count = len(taps)
    kind = rng.random()
    if kind < 0.1:
        bias = np.zeros(count, np.int64)
    elif kind < 0.25:
        bias = rng.choice([-(1 << 28), 1 << 28, 0, 5], count)
    else:
        bias = np.rint(rng.normal(0, 60, count) / factors).clip(-(1 << 28), 1 << 28)
    room = _REACH // 16 - 256 * np.abs(taps).sum(axis=1)
    return np.clip(bias, -room, room).astype(np.int32)


# ---- elementwise and the rest ------------------------------------------------------------------


def _pair(builtin: str) -> Callable[[np.random.Generator, str], Case]:
    def make(rng: np.random.Generator, name: str) -> Case:
        a_shape, b_shape = _pair_shapes(rng)
        shape = tuple(np.broadcast_shapes(a_shape, b_shape))
        first = _power(rng, -8, 2)
        second = first if rng.random() < 0.2 else _float32(first * _power(rng, -6, 6))
        if builtin == "MUL":
            third = _float32(first * second * _power(rng, 2, 9))
        else:
            third = _float32(max(first, second) * _power(rng, -3, 3))
        a, b = _tensor(rng, a_shape, first), _tensor(rng, b_shape, second)
        if rng.random() < 0.15:
            data = rng.integers(-128, 128, b_shape).astype(np.int8)
            b = CaseTensor(b_shape, "int8", b.scales, b.zero_points, None, data)
        options = {"fused_activation_function": _pick(rng, _ACTIVATIONS)}
        return Case(name, builtin, (a, b), (_tensor(rng, shape, third),), options)

    return make


def _pair_shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    channels = _pick(rng, _CHANNELS)
    most = min(12, math.isqrt(MOST_ELEMENTS // channels))
    shape = (1, int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1)), channels)
    other: tuple[int, ...] = shape
    match int(rng.integers(10)):
        case 0:
            other = (channels,)
        case 1:
            other = (1, 1, 1, channels)
        case 2:
            other = (1, shape[1], shape[2], 1)
    return shape, other


def _mean(rng: np.random.Generator, name: str) -> Case:
    channels = _pick(rng, _CHANNELS)
    most = min(16, math.isqrt(MOST_ELEMENTS // channels))
    height, width = (int(rng.integers(1, most + 1)) for _ in "hw")
    keep = bool(rng.random() < 0.5)
    axes = _pick(rng, ((1, 2), (1, 2), (1, 2), (2,), (3,)))
    shape = (1, height, width, channels)
    reduced = tuple(
        1 if axis in axes else length
        for axis, length in enumerate(shape)
        if keep or axis not in axes
    )
    scale = _power(rng, -8, 2)
    x, y = _tensor(rng, shape, scale), _tensor(rng, reduced, _float32(scale * _power(rng, -3, 1)))
    where = CaseTensor((len(axes),), "int32", data=np.array(axes, np.int32))
    return Case(name, "MEAN", (x, where), (y,), {"keep_dims": keep})


def _softmax(rng: np.random.Generator, name: str) -> Case:
    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 60)))
    x = _tensor(rng, shape, _power(rng, -9, 1))
    y = CaseTensor(shape, "int8", (1 / 256,), (-128,))
    return Case(name, "SOFTMAX", (x,), (y,), {"beta": 1.0})


_MAKERS: tuple[tuple[str, Callable[[np.random.Generator, str], Case]], ...] = (
    ("conv", _convolution),
    ("depthwise", _depthwise),
    ("conv", _convolution),
    ("fully_connected", _fully_connected),
    ("conv", _convolution),
    ("depthwise", _depthwise),
    ("add", _pair("ADD")),
    ("average", _pool("AVERAGE_POOL_2D")),
    ("conv", _convolution),
    ("depthwise", _depthwise),
    ("fully_connected", _fully_connected),
    ("max", _pool("MAX_POOL_2D")),
    ("conv", _convolution),
    ("depthwise", _depthwise),
    ("sub", _pair("SUB")),
    ("mul", _pair("MUL")),
    ("conv", _even_convolution),
    ("depthwise", _depthwise),
    ("mean", _mean),
    ("softmax", _softmax),
)
