"""Random layers typical of small networks and row-streamed segments.

They are independent of the benchmark models, so they can validate results fitted to
those.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.layers import ActivationAttrs, FullyConnectedAttrs
from firmwright.ir.graph.attributes.values import SoftmaxAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv_window import same_padding

MAX_ELEMENTS = 12_000
"""Limit of the elements of a layer's input and of its output."""
_CHANNELS = (3, 4, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)

_Pair: TypeAlias = tuple[int, int]


def generate_layers(seed: int) -> Iterator[OpCall]:
    """Yield operator calls endlessly; equal seeds give equal sequences."""
    source = _LayerSource(np.random.Generator(np.random.PCG64(seed)))
    makers: tuple[Callable[[], OpCall], ...] = (
        source.pointwise,
        source.depthwise,
        source.convolution,
        source.pointwise_row,
        source.depthwise_row,
        source.convolution_row,
        source.fully_connected,
        source.add,
        source.pool,
        source.first_layer,
        source.softmax,
    )
    wide = (
        source.pointwise,
        source.depthwise,
        source.convolution,
        source.fully_connected,
    )
    while True:
        yield from (make() for make in makers)
        yield from (source.with_int16(make()) for make in wide)


@dataclass(frozen=True, slots=True)
class _LayerSource:
    """Generates random layers, with one output row in methods named `*_row`."""

    rng: np.random.Generator

    def pointwise(self) -> OpCall:
        channels, outputs = self._pick(_CHANNELS), self._pick(_CHANNELS)
        return self._conv(
            self._image(max(channels, outputs), 24), channels, outputs, (1, 1)
        )

    def pointwise_row(self) -> OpCall:
        columns, outputs = self._between(3, 49), self._pick(_CHANNELS)
        return self._conv((1, columns), self._pick(_CHANNELS), outputs, (1, 1))

    def convolution(self) -> OpCall:
        channels, outputs = self._pick(_CHANNELS[:8]), self._pick(_CHANNELS[:9])
        window = (self._pick((1, 3, 3, 3, 5)), self._pick((3, 3, 3, 5)))
        size = self._image(max(channels, outputs), 16)
        return self._conv(size, channels, outputs, window, self._stride())

    def convolution_row(self) -> OpCall:
        channels, outputs = self._pick(_CHANNELS[:8]), self._pick(_CHANNELS[:9])
        window = (3, 3) if self._chance(0.7) else (5, 5)
        size = (window[0], self._between(6, 49))
        return self._conv(size, channels, outputs, window, self._stride(), row=True)

    def first_layer(self) -> OpCall:
        window = ((3, 3), (5, 5), (10, 4), (4, 4))[self._between(0, 4)]
        channels, outputs = self._pick((1, 1, 3, 3, 2)), self._pick((8, 16, 24, 32, 64))
        size = self._between(12, 25), self._between(10, 25)
        return self._conv(size, channels, outputs, window, (2, 2))

    def depthwise(self) -> OpCall:
        channels = self._pick(_CHANNELS)
        window = ((3, 3), (3, 3), (3, 3), (5, 5), (1, 7), (9, 1), (3, 1))[
            self._between(0, 7)
        ]
        return self._conv(
            self._image(channels, 24), channels, 0, window, self._stride()
        )

    def depthwise_row(self) -> OpCall:
        channels, columns = self._pick(_CHANNELS), self._between(6, 49)
        window = (3, 3) if self._chance(0.8) else (5, 5)
        return self._conv(
            (window[0], columns), channels, 0, window, self._stride(), row=True
        )

    def fully_connected(self) -> OpCall:
        depth, outputs = self._between(8, 400), self._between(2, 100)
        quantization = Quantization((self._scale(0.001, 0.01),), (0,))
        weights = TensorType((outputs, depth), INT8, quantization)
        return OpCall(
            "fully_connected",
            (
                self._tensor((1, depth), 0.02, 0.1),
                weights,
                TensorType((outputs,), INT32),
            ),
            (self._tensor((1, outputs), 0.05, 0.5),),
            FullyConnectedAttrs(
                activation="relu" if self._chance(0.6) else "none", keep_dims=False
            ),
            (None, *self._parameters((outputs, depth), outputs)),
        )

    def add(self) -> OpCall:
        channels = self._pick(_CHANNELS)
        shape = (1, *self._image(channels, 24), channels)
        left, right, total = (self._tensor(shape, 0.02, 0.1) for _ in range(3))
        activation = "relu" if self._chance(0.5) else "none"
        return OpCall(
            "add",
            (left, right),
            (total,),
            ActivationAttrs(activation=activation),
            (None, None),
        )

    def pool(self) -> OpCall:
        channels = self._pick(_CHANNELS)
        rows, columns = size = self._image(channels, 12)
        window = size if self._chance(0.5) else (2, 2)
        x = self._tensor((1, *size, channels), 0.02, 0.1)
        shape = (1, rows // window[0], columns // window[1], channels)
        op = "max_pool2d" if self._chance(0.5) else "average_pool2d"
        attrs: dict[str, str | tuple[int, ...]] = {
            **{"size": window, "stride": window, "dilation": (1, 1)},
            **{"padding": (0, 0, 0, 0), "activation": "none"},
        }
        return OpCall(
            op,
            (x,),
            (TensorType(shape, INT8, x.quantization),),
            attrs_from_mapping(op, attrs),
            (None,),
        )

    def softmax(self) -> OpCall:
        shape = (1, self._between(2, 30))
        y = TensorType(shape, INT8, Quantization((1 / 256,), (-128,)))
        return OpCall(
            "softmax",
            (self._tensor(shape, 0.05, 0.2),),
            (y,),
            SoftmaxAttrs(beta=1.0),
            (None,),
        )

    def with_int16(self, call: OpCall) -> OpCall:
        """Return the same layer with int16 activations and a 64-bit bias."""
        x, y = (
            TensorType(kind.shape, INT16, Quantization((self._scale(low, high),), (0,)))
            for kind, low, high in (
                (call.input(0), 1e-4, 4e-4),
                (call.output, 4e-4, 2e-3),
            )
        )
        _, weights, bias = call.constants
        assert bias is not None
        wide = Constant.from_array("b", bias.array().astype(np.int64), INT64)
        inputs = (x, call.input(1), TensorType((y.shape[-1],), INT64))
        return replace(
            call, inputs=inputs, outputs=(y,), constants=(None, weights, wide)
        )

    # ---- parts -----------------------------------------------------------------------

    def _conv(
        self,
        size: _Pair,
        channels: int,
        outputs: int,
        window: _Pair,
        stride: _Pair = (1, 1),
        *,
        row: bool = False,
    ) -> OpCall:
        """Return a convolution, depthwise if `outputs` is 0; `row` pads no rows."""
        depthwise, outputs = not outputs, outputs or channels
        pads = [
            same_padding(n, k, s, 1)
            for n, k, s in zip(size, window, stride, strict=True)
        ]
        pads[0] = (0, 0) if row else pads[0]
        dims = zip(size, pads, window, stride, strict=True)
        rows, columns = ((n + sum(pad) - k) // s + 1 for n, pad, k, s in dims)
        shape = (1, *window, outputs) if depthwise else (outputs, *window, channels)
        scales = tuple(self._scale(0.001, 0.01) for _ in range(outputs))
        quantization = Quantization(scales, (0,) * outputs, 3 if depthwise else 0)
        attrs: dict[str, int | str | tuple[int, ...]] = {
            "stride": stride,
            "dilation": (1, 1),
            "padding": (*pads[0], *pads[1]),
            "activation": "relu" if self._chance(0.6) else "none",
        }
        x, weights = (
            self._tensor((1, *size, channels), 0.02, 0.1),
            TensorType(shape, INT8, quantization),
        )
        return OpCall(
            "depthwise_conv2d" if depthwise else "conv2d",
            (x, weights, TensorType((outputs,), INT32)),
            (self._tensor((1, rows, columns, outputs), 0.02, 0.2),),
            attrs_from_mapping("depthwise_conv2d" if depthwise else "conv2d", attrs),
            (None, *self._parameters(shape, outputs)),
        )

    def _parameters(
        self, shape: tuple[int, ...], outputs: int
    ) -> tuple[Constant, Constant]:
        weights = self.rng.integers(-127, 128, shape).astype(np.int8)
        bias = self.rng.integers(-4000, 4000, outputs).astype(np.int32)
        return Constant.from_array("w", weights, INT8), Constant.from_array(
            "b", bias, INT32
        )

    def _tensor(self, shape: tuple[int, ...], low: float, high: float) -> TensorType:
        """Return an int8 tensor type, in half of the cases with a ReLU's zero point."""
        point = -128 if self._chance(0.5) else self._between(-100, 100)
        return TensorType(
            shape, INT8, Quantization((self._scale(low, high),), (point,))
        )

    def _image(self, channels: int, most: int) -> _Pair:
        limit = min(most, int((MAX_ELEMENTS / channels) ** 0.5))
        return self._between(3, limit + 1), self._between(3, limit + 1)

    def _stride(self) -> _Pair:
        return (2, 2) if self._chance(0.25) else (1, 1)

    def _pick(self, values: tuple[int, ...]) -> int:
        return values[self._between(0, len(values))]

    def _between(self, low: int, end: int) -> int:
        return int(self.rng.integers(low, end))

    def _scale(self, low: float, high: float) -> float:
        return float(np.float32(self.rng.uniform(low, high)))

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)
