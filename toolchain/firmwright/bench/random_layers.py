"""Random layers typical of small networks and row-streamed segments.

They are independent of the benchmark models and thus test results that were fitted to those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ops.conv_window import same_padding

MAX_ELEMENTS = 12_000
"""Limit of the elements of a layer's input and of its output."""
_CHANNELS = (3, 4, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)

_Maker: TypeAlias = Callable[[np.random.Generator], OpCall]


def generate_layers(seed: int) -> Iterator[OpCall]:
    """Yield operator calls endlessly; equal seeds give equal sequences."""
    rng = np.random.Generator(np.random.PCG64(seed))
    makers: tuple[_Maker, ...] = (
        _pointwise,
        _depthwise,
        _convolution,
        _pointwise_row,
        _depthwise_row,
        _convolution_row,
        _fully_connected,
        _add,
        _pool,
        _first_layer,
        _softmax,
        *(
            _int16_variant(make)
            for make in (_pointwise, _depthwise, _convolution, _fully_connected)
        ),
    )
    while True:
        for make in makers:
            yield make(rng)


def _pick(rng: np.random.Generator, values: tuple[int, ...]) -> int:
    return int(values[int(rng.integers(len(values)))])


def _scale(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.float32(rng.uniform(low, high)))


def _tensor(
    rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float
) -> TensorType:
    """Return an int8 tensor type, in half of the cases with a ReLU output's zero point."""
    point = -128 if rng.random() < 0.5 else int(rng.integers(-100, 100))
    return TensorType(shape, INT8, Quantization((_scale(rng, low, high),), (point,)))


def _image(rng: np.random.Generator, channels: int, most: int) -> tuple[int, int]:
    limit = min(most, int((MAX_ELEMENTS / channels) ** 0.5))
    return int(rng.integers(3, limit + 1)), int(rng.integers(3, limit + 1))


def _pointwise(rng: np.random.Generator) -> OpCall:
    channels, outputs = _pick(rng, _CHANNELS), _pick(rng, _CHANNELS)
    size = _image(rng, max(channels, outputs), 24)
    return _conv(rng, size, channels, outputs, (1, 1), (1, 1), "same")


def _pointwise_row(rng: np.random.Generator) -> OpCall:
    columns, outputs = int(rng.integers(3, 49)), _pick(rng, _CHANNELS)
    return _conv(rng, (1, columns), _pick(rng, _CHANNELS), outputs, (1, 1), (1, 1), "same")


def _convolution(rng: np.random.Generator) -> OpCall:
    channels, outputs = _pick(rng, _CHANNELS[:8]), _pick(rng, _CHANNELS[:9])
    window = (_pick(rng, (1, 3, 3, 3, 5)), _pick(rng, (3, 3, 3, 5)))
    size = _image(rng, max(channels, outputs), 16)
    return _conv(rng, size, channels, outputs, window, _stride(rng), "same")


def _convolution_row(rng: np.random.Generator) -> OpCall:
    channels, outputs = _pick(rng, _CHANNELS[:8]), _pick(rng, _CHANNELS[:9])
    window = (3, 3) if rng.random() < 0.7 else (5, 5)
    columns = int(rng.integers(6, 49))
    return _conv(rng, (window[0], columns), channels, outputs, window, _stride(rng), "row")


def _first_layer(rng: np.random.Generator) -> OpCall:
    window = ((3, 3), (5, 5), (10, 4), (4, 4))[int(rng.integers(4))]
    channels, outputs = _pick(rng, (1, 1, 3, 3, 2)), _pick(rng, (8, 16, 24, 32, 64))
    size = int(rng.integers(12, 25)), int(rng.integers(10, 25))
    return _conv(rng, size, channels, outputs, window, (2, 2), "same")


def _stride(rng: np.random.Generator) -> tuple[int, int]:
    return (2, 2) if rng.random() < 0.25 else (1, 1)


def _depthwise(rng: np.random.Generator) -> OpCall:
    channels = _pick(rng, _CHANNELS)
    window = ((3, 3), (3, 3), (3, 3), (5, 5), (1, 7), (9, 1), (3, 1))[int(rng.integers(7))]
    return _conv(
        rng, _image(rng, channels, 24), channels, 0, window, _stride(rng), "same", depthwise=True
    )


def _depthwise_row(rng: np.random.Generator) -> OpCall:
    channels, columns = _pick(rng, _CHANNELS), int(rng.integers(6, 49))
    window = (3, 3) if rng.random() < 0.8 else (5, 5)
    return _conv(
        rng, (window[0], columns), channels, 0, window, _stride(rng), "row", depthwise=True
    )


def _conv(
    rng: np.random.Generator,
    size: tuple[int, int],
    channels: int,
    outputs: int,
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: str,
    *,
    depthwise: bool = False,
) -> OpCall:
    """Return a convolution; `padding` is `same`, or `row` for columns only."""
    outputs = outputs or channels
    pads = [same_padding(n, k, s, 1) for n, k, s in zip(size, window, stride, strict=True)]
    pads[0] = (0, 0) if padding == "row" else pads[0]
    rows, columns = (
        (n + sum(pad) - k) // s + 1 for n, pad, k, s in zip(size, pads, window, stride, strict=True)
    )
    shape = (1, *window, outputs) if depthwise else (outputs, *window, channels)
    scales = tuple(_scale(rng, 0.001, 0.01) for _ in range(outputs))
    quantization = Quantization(scales, (0,) * outputs, 3 if depthwise else 0)
    attrs: dict[str, int | str | tuple[int, ...]] = {
        "stride": stride,
        "dilation": (1, 1),
        "padding": (*pads[0], *pads[1]),
        "activation": "relu" if rng.random() < 0.6 else "none",
    }
    if depthwise:
        attrs["depth_multiplier"] = 1
    return OpCall(
        "depthwise_conv2d" if depthwise else "conv2d",
        (
            _tensor(rng, (1, *size, channels), 0.02, 0.1),
            TensorType(shape, INT8, quantization),
            TensorType((outputs,), INT32),
        ),
        (_tensor(rng, (1, rows, columns, outputs), 0.02, 0.2),),
        attrs,
        (None, *_parameters(rng, shape, outputs)),
    )


def _parameters(
    rng: np.random.Generator, shape: tuple[int, ...], outputs: int
) -> tuple[Constant, Constant]:
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    bias = rng.integers(-4000, 4000, outputs).astype(np.int32)
    return Constant.from_array("w", weights, INT8), Constant.from_array("b", bias, INT32)


def _fully_connected(rng: np.random.Generator) -> OpCall:
    depth, outputs = int(rng.integers(8, 400)), int(rng.integers(2, 100))
    weights = TensorType((outputs, depth), INT8, Quantization((_scale(rng, 0.001, 0.01),), (0,)))
    return OpCall(
        "fully_connected",
        (_tensor(rng, (1, depth), 0.02, 0.1), weights, TensorType((outputs,), INT32)),
        (_tensor(rng, (1, outputs), 0.05, 0.5),),
        {"activation": "relu" if rng.random() < 0.6 else "none", "keep_dims": False},
        (None, *_parameters(rng, (outputs, depth), outputs)),
    )


def _add(rng: np.random.Generator) -> OpCall:
    channels = _pick(rng, _CHANNELS)
    shape = (1, *_image(rng, channels, 24), channels)
    left, right, total = (_tensor(rng, shape, 0.02, 0.1) for _ in range(3))
    activation = "relu" if rng.random() < 0.5 else "none"
    return OpCall("add", (left, right), (total,), {"activation": activation}, (None, None))


def _pool(rng: np.random.Generator) -> OpCall:
    channels = _pick(rng, _CHANNELS)
    rows, columns = size = _image(rng, channels, 12)
    window = size if rng.random() < 0.5 else (2, 2)
    x = _tensor(rng, (1, *size, channels), 0.02, 0.1)
    shape = (1, rows // window[0], columns // window[1], channels)
    return OpCall(
        "max_pool2d" if rng.random() < 0.5 else "average_pool2d",
        (x,),
        (TensorType(shape, INT8, x.quantization),),
        {
            "size": window,
            "stride": window,
            "dilation": (1, 1),
            "padding": (0, 0, 0, 0),
            "activation": "none",
        },
        (None,),
    )


def _softmax(rng: np.random.Generator) -> OpCall:
    shape = (1, int(rng.integers(2, 30)))
    result = TensorType(shape, INT8, Quantization((1 / 256,), (-128,)))
    return OpCall("softmax", (_tensor(rng, shape, 0.05, 0.2),), (result,), {"beta": 1.0}, (None,))


def _int16_variant(make: _Maker) -> _Maker:
    """Return a maker of the same layer with int16 activations and a 64-bit bias."""

    def made(rng: np.random.Generator) -> OpCall:
        call = make(rng)
        x, y = (
            TensorType(kind.shape, INT16, Quantization((_scale(rng, *range_of),), (0,)))
            for kind, range_of in ((call.input(0), (1e-4, 4e-4)), (call.output, (4e-4, 2e-3)))
        )
        _, weights, bias = call.constants
        assert bias is not None
        wide = Constant.from_array("b", bias.array().astype(np.int64), INT64)
        inputs = (x, call.input(1), TensorType((y.shape[-1],), INT64))
        return replace(call, inputs=inputs, outputs=(y,), constants=(None, weights, wide))

    return made
