"""Random layers, and comparison of interpreted kernels with the reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.layers import Conv2DAttrs, FullyConnectedAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.conv_window import same_padding
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.registry import INTRINSICS
from tests.unit.ir.verified import verify_prim_func


def _float32(value: float) -> float:
    return float(np.float32(value))


def _activation(rng: np.random.Generator) -> str:
    return str(rng.choice(["none", "relu", "relu6", "relu_n1_to_1"]))


def _tensor(
    rng: np.random.Generator, shape: tuple[int, ...], scale: float
) -> TensorType:
    point = int(rng.choice([-128, 127, 0, int(rng.integers(-128, 128))]))
    return TensorType(shape, INT8, Quantization((_float32(scale),), (point,)))


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Mostly the whole int8 range including -128; sometimes a single extreme."""
    if rng.random() < 0.1:
        return np.full(shape, rng.choice([-128, 127]), np.int8)
    return rng.integers(-128, 128, shape).astype(np.int8)


@pytest.fixture
def random_convolution() -> Callable[..., OpCall]:
    return _random_convolution


@pytest.fixture
def random_row() -> Callable[..., OpCall]:
    return _random_row


@pytest.fixture
def narrow_depthwise() -> Callable[..., OpCall]:
    return _narrow_depthwise


@pytest.fixture
def whole_depthwise() -> Callable[..., OpCall]:
    return _whole_depthwise


@pytest.fixture
def outside_convolution() -> Callable[..., OpCall]:
    return _outside_convolution


@pytest.fixture
def random_fully_connected() -> Callable[..., OpCall]:
    return _random_fully_connected


def _random_convolution(seed: int, *, depthwise: bool) -> OpCall:
    """A convolution of a few hundred outputs with random attributes."""
    rng = np.random.Generator(np.random.PCG64([seed, depthwise]))
    size = (int(rng.integers(1, 5)), int(rng.integers(1, 4)))
    stride = (int(rng.integers(1, 3)), int(rng.integers(1, 3)))
    dilation = (int(rng.integers(1, 3)), 1) if rng.random() < 0.2 else (1, 1)
    height, width = int(rng.integers(1, 8)) + 8 * (size[0] > 2), int(rng.integers(4, 9))
    channels = int(rng.integers(1, 10))
    multiplier = int(rng.integers(1, 3)) if depthwise else 1
    outputs = channels * multiplier if depthwise else int(rng.integers(1, 8))
    padding: tuple[int, ...] = (0, 0, 0, 0)
    if rng.random() < 0.6 or height < (size[0] - 1) * dilation[0] + 1:
        padding = (
            *same_padding(height, size[0], stride[0], dilation[0]),
            *same_padding(width, size[1], stride[1], dilation[1]),
        )
    shape = (1, *size, outputs) if depthwise else (outputs, *size, channels)
    scales = tuple(_float32(s) for s in rng.uniform(0.0005, 0.05, outputs))
    weights = TensorType(
        shape, INT8, Quantization(scales, (0,) * outputs, 3 if depthwise else 0)
    )
    batch = int(rng.integers(1, 3))
    rows = (
        height + padding[0] + padding[1] - (size[0] - 1) * dilation[0] - 1
    ) // stride[0] + 1
    cols = (
        width + padding[2] + padding[3] - (size[1] - 1) * dilation[1] - 1
    ) // stride[1] + 1
    attrs = {
        "stride": stride,
        "dilation": dilation,
        "padding": padding,
        "activation": _activation(rng),
    }
    return OpCall(
        "depthwise_conv2d" if depthwise else "conv2d",
        (
            _tensor(rng, (batch, height, width, channels), 0.05),
            weights,
            TensorType((outputs,), INT32),
        ),
        (_tensor(rng, (batch, rows, cols, outputs), float(rng.uniform(0.02, 2.0))),),
        attrs_from_mapping("depthwise_conv2d" if depthwise else "conv2d", attrs),
        (
            None,
            Constant.from_array("w", _weights(rng, shape), INT8),
            Constant.from_array("b", rng.integers(-9000, 9000, outputs), INT32),
        ),
    )


def _random_row(seed: int, *, depthwise: bool, dilation: int = 1) -> OpCall:
    """A convolution of one output row, padded horizontally, as in row streaming.

    Dilated windows have one row.
    """
    rng = np.random.Generator(np.random.PCG64([seed, depthwise, 1]))
    size = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    stride = int(rng.integers(1, 3))
    width = int(rng.integers(4, 10))
    channels = int(rng.choice([1, 3, 8, 16, 20, 33]))
    outputs = channels if depthwise else int(rng.integers(1, 10))
    if dilation > 1:
        size, width = (1, size[1]), width + 4 * dilation
    reach = (size[1] - 1) * dilation + 1
    sides = (0, 0)
    if rng.random() < 0.7:
        sides = same_padding(width, size[1], stride, dilation)
    columns = (width + sum(sides) - reach) // stride + 1
    shape = (1, *size, outputs) if depthwise else (outputs, *size, channels)
    scales = tuple(_float32(s) for s in rng.uniform(0.0005, 0.01, outputs))
    weights = TensorType(
        shape, INT8, Quantization(scales, (0,) * outputs, 3 if depthwise else 0)
    )
    attrs = {
        "stride": (int(rng.integers(1, 3)), stride),
        "dilation": (1, dilation),
        "padding": (0, 0, *sides),
        "activation": _activation(rng),
    }
    return OpCall(
        "depthwise_conv2d" if depthwise else "conv2d",
        (
            _tensor(rng, (1, size[0], width, channels), 0.05),
            weights,
            TensorType((outputs,), INT32),
        ),
        (_tensor(rng, (1, 1, columns, outputs), float(rng.uniform(0.02, 2.0))),),
        attrs_from_mapping("depthwise_conv2d" if depthwise else "conv2d", attrs),
        (
            None,
            Constant.from_array("w", _weights(rng, shape), INT8),
            Constant.from_array("b", rng.integers(-9000, 9000, outputs), INT32),
        ),
    )


def _whole_depthwise(size: tuple[int, int], channels: int, outputs: int) -> OpCall:
    """Windows of `size` without padding, with `outputs` adjacent outputs."""
    rng = np.random.Generator(np.random.PCG64([*size, channels, outputs]))
    scales = tuple(_float32(s) for s in rng.uniform(0.001, 0.02, channels))
    shape = (1, *size, channels)
    weights = rng.integers(-128, 128, shape).astype(np.int8)
    return OpCall(
        "depthwise_conv2d",
        (
            _tensor(rng, (1, size[0], size[1] + outputs - 1, channels), 0.05),
            TensorType(shape, INT8, Quantization(scales, (0,) * channels, 3)),
            TensorType((channels,), INT32),
        ),
        (_tensor(rng, (1, 1, outputs, channels), 0.3),),
        Conv2DAttrs(
            stride=(1, 1), dilation=(1, 1), padding=(0,) * 4, activation="none"
        ),
        (
            None,
            Constant.from_array("w", weights, INT8),
            Constant.from_array("b", rng.integers(-9000, 9000, channels), INT32),
        ),
    )


def _narrow_depthwise(width: int, size: int, rows: int = 3) -> OpCall:
    """Windows of `rows` x `size` on inputs of width `width`, with as many outputs."""
    rng = np.random.Generator(np.random.PCG64([width, size, 9]))
    sides = same_padding(width, size, 1, 1)
    quantization = Quantization((0.01, 0.02, 0.004), (0, 0, 0), 3)
    shape = (1, rows, size, 3)
    return OpCall(
        "depthwise_conv2d",
        (
            _tensor(rng, (1, 3, width, 3), 0.05),
            TensorType(shape, INT8, quantization),
            TensorType((3,), INT32),
        ),
        (_tensor(rng, (1, 3, width, 3), 0.3),),
        Conv2DAttrs(
            stride=(1, 1),
            dilation=(1, 1),
            padding=(rows // 2, rows // 2, *sides),
            activation="none",
        ),
        (
            None,
            Constant.from_array(
                "w", rng.integers(-128, 128, shape).astype(np.int8), INT8
            ),
            Constant.from_array("b", rng.integers(-9000, 9000, 3), INT32),
        ),
    )


def _outside_convolution(*, depthwise: bool) -> OpCall:
    """Windows of three rows in the column left of the input: they have padding only."""
    channels = 8
    rng = np.random.Generator(np.random.PCG64([channels, depthwise]))
    shape = (1, 3, 1, channels) if depthwise else (channels, 3, 1, channels)
    op = "depthwise_conv2d" if depthwise else "conv2d"
    attrs = {
        "stride": (1, 4),
        "dilation": (1, 1),
        "padding": (1, 1, 1, 0),
        "activation": "none",
    }
    weights = rng.integers(-128, 128, shape).astype(np.int8)
    return OpCall(
        op,
        (
            _tensor(rng, (1, 6, 3, channels), 0.05),
            TensorType(shape, INT8, Quantization((0.01,), (0,))),
            TensorType((channels,), INT32),
        ),
        (_tensor(rng, (1, 6, 1, channels), 0.3),),
        attrs_from_mapping(op, attrs),
        (
            None,
            Constant.from_array("w", weights, INT8),
            Constant.from_array("b", rng.integers(-9000, 9000, channels), INT32),
        ),
    )


def _random_fully_connected(seed: int, *, has_row_scales: bool = False) -> OpCall:
    """A matrix of up to 40 x 20, in either rounding profile.

    Weights have one scale, or one for each output.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 5]))
    depth, outputs, batch = (int(rng.integers(1, n)) for n in (40, 20, 3))
    scale = _float32(rng.uniform(0.001, 0.05))
    numerics: NumericsProfile = "tflm" if rng.random() < 0.5 else "litert"
    quantization = Quantization((scale,), (0,))
    if has_row_scales:
        scales = tuple(_float32(s) for s in rng.uniform(0.001, 0.05, outputs))
        quantization = Quantization(scales, (0,) * outputs, 0)
    return OpCall(
        "fully_connected",
        (
            _tensor(rng, (batch, depth), 0.05),
            TensorType((outputs, depth), INT8, quantization),
            TensorType((outputs,), INT32),
        ),
        (_tensor(rng, (batch, outputs), float(rng.uniform(0.02, 2.0))),),
        FullyConnectedAttrs(activation=_activation(rng), keep_dims=False),
        (
            None,
            Constant.from_array("w", _weights(rng, (outputs, depth)), INT8),
            Constant.from_array("b", rng.integers(-9000, 9000, outputs), INT32),
        ),
        numerics,
    )


def _built(
    call: OpCall, schedule: Schedule[ScheduleConfig], config: ScheduleConfig
) -> Kernel:
    kernel = Kernel("kernel", call)
    schedule.build(call, config, kernel)
    return kernel


def _executed(call: OpCall, kernel: Kernel, x: Array, y: Array) -> Array:
    """Return `y` after the kernel ran on `x`; the kernel must pass the verifier."""
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
    return y


@pytest.fixture
def judge() -> Callable[[OpCall, Schedule[ScheduleConfig], ScheduleConfig], None]:
    """Run a schedule on random input and require the bits of the reference."""

    def check(
        call: OpCall, schedule: Schedule[ScheduleConfig], config: ScheduleConfig
    ) -> None:
        rng = np.random.default_rng(0)
        dtype = call.input(0).dtype
        drawn = rng.integers(dtype.min, dtype.max + 1, call.input(0).shape)
        x = drawn.astype(dtype.np)
        arrays = [x, *(c.array() for c in call.constants[1:] if c is not None)]
        (expected,) = op_table()[call.op].reference(call, arrays)
        kernel = _built(call, schedule, config)
        empty = np.zeros(call.output.shape, call.output.dtype.np)
        actual = _executed(call, kernel, x, empty)
        np.testing.assert_array_equal(actual, expected)

    return check
