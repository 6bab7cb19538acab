"""Direct dot-product schedules: int16 layers and int8 transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.quant import Quantization
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import Schedule
from firmwright.schedules.cortex_m_dsp import direct_dot_products
from firmwright.schedules.registry import INTRINSICS
from tests.unit.ir.verified import verify_prim_func

CONV, TRANSPOSED = direct_dot_products.SCHEDULES
SEEDS = range(10)


def layer(
    op: str,
    seed: int,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    y_shape: Sequence[int],
    numerics: NumericsProfile,
    **attrs: Attr,
) -> OpCall:
    """Random weights, scales and zero points; int16, or sometimes int8 if supported."""
    rng = np.random.default_rng(seed)
    is_wide = op != "transpose_conv" or seed % 3 != 0
    kind, sums = (INT16, INT64) if is_wide else (INT8, INT32)
    points = (0, 0) if is_wide else (int(z) for z in rng.integers(-128, 128, 2))
    taps, channels = math.prod(w_shape[1:]), w_shape[0]
    scales = tuple(float(np.float32(s)) for s in rng.uniform(0.005, 0.02, channels))
    reach = 2.0**-9 if is_wide else 0.1
    x, y = (
        TensorType(
            tuple(shape), kind, Quantization((float(np.float32(scale)),), (point,))
        )
        for shape, scale, point in zip(
            (x_shape, y_shape), (reach, reach * math.sqrt(taps)), points, strict=True
        )
    )
    w = TensorType(tuple(w_shape), INT8, Quantization(scales, (0,) * channels, 0))
    bias = rng.integers(-5000, 5000, channels)
    constants = (
        None,
        Constant.from_array(
            "w", rng.integers(-128, 128, w_shape).astype(np.int8), INT8
        ),
        Constant.from_array("b", bias, sums) if seed % 4 else None,
    )
    kinds = (x, w, TensorType((channels,), sums) if seed % 4 else None)
    attrs = {"activation": str(rng.choice(["none", "relu"])), **attrs}
    return OpCall(op, kinds, (y,), attrs_from_mapping(op, attrs), constants, numerics)


def convolution(seed: int, numerics: NumericsProfile) -> OpCall:
    rng = np.random.default_rng([seed, 1])
    size, padding = (
        (int(rng.integers(1, 4)), 3),
        (1, 0, 1, 1) if seed % 2 else (0, 0, 0, 0),
    )
    stride, dilation = (1 + seed % 2, 1), (1, 1 + seed // 2 % 2)
    rows, cols = (
        (7 + before + after - (k - 1) * d - 1) // s + 1
        for k, d, s, before, after in zip(
            size, dilation, stride, padding[::2], padding[1::2], strict=True
        )
    )
    inputs, outputs = int(rng.integers(1, 10)), int(rng.integers(1, 10))
    return layer(
        "conv2d",
        seed,
        (1, 7, 7, inputs),
        (outputs, *size, inputs),
        (1, rows, cols, outputs),
        numerics,
        padding=padding,
        stride=stride,
        dilation=dilation,
    )


def transposed(seed: int, numerics: NumericsProfile) -> OpCall:
    rng = np.random.default_rng([seed, 3])
    stride, size = (1 + seed % 3, 2), (int(rng.integers(1, 5)), 3)
    before, outputs = (int(rng.integers(0, 2)), seed % 2), int(rng.integers(1, 9))
    height, inputs = 3 * stride[0] + size[0] - before[0], int(rng.integers(1, 9))
    x_shape, w_shape = (2, 4, 5, inputs), (outputs, *size, inputs)
    return layer(
        "transpose_conv",
        seed,
        x_shape,
        w_shape,
        (2, height, 10, outputs),
        numerics,
        stride=stride,
        before=before,
    )


def check(call: OpCall, schedule: Schedule) -> None:
    (config,) = schedule.configs(call)
    rng = np.random.default_rng(7)
    low, high = call.input(0).dtype.min, call.input(0).dtype.max
    x = rng.integers(low, high + 1, call.input(0).shape).astype(call.input(0).dtype.np)
    constants = [item.array() for item in call.constants if item is not None]
    (expected,) = op_table()[call.op].reference(call, [x, *constants])
    y = np.zeros(call.output.shape, call.output.dtype.np)
    kernel = Kernel("kernel", call)
    schedule.build(call, config, kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("numerics", ["litert", "tflm"])
@pytest.mark.parametrize("seed", SEEDS)
def test_direct_dot_products_match_the_reference(
    seed: int, numerics: NumericsProfile
) -> None:
    for make, schedule in ((convolution, CONV), (transposed, TRANSPOSED)):
        check(make(seed, numerics), schedule)


def test_layers_whose_products_exceed_32_bits_are_not_supported() -> None:
    attrs = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
    for depth in (6, 2048):
        shapes = (1, 1, 1, depth), (4, 1, 1, depth), (1, 1, 1, 4)
        call = layer("conv2d", 1, *shapes, "litert", **attrs)
        assert bool(CONV.configs(call)) is (depth == 6)
