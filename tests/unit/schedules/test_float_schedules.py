"""Float schedules produce the default loops' bits and keep their addition order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, Array
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.layers import ActivationAttrs, TransposeConvAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.schedules.fpu.conv2d_fully_connected import FpuConfig
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from tests.unit.ir.verified import verify_prim_func

HYBRID = [schedule for schedule in SCHEDULES if schedule.op == "hybrid_conv2d"]
WEIGHTED = ("conv2d", "depthwise_conv2d", "fully_connected")
POOLS = [
    each
    for each in SCHEDULES
    if each.name in ("scalar.max_pool2d.inside", "fpu.max_pool2d.lanes")
]
OF_INTEGERS = ("int16_im2col", "depthwise.strips", "int4")
FLOAT = [
    schedule
    for schedule in SCHEDULES
    if schedule.op in WEIGHTED
    and not schedule.name.endswith(OF_INTEGERS)
    and (
        schedule.name.startswith(("fpu.", "scalar.", "soft_float."))
        or schedule.name.endswith((".separate", ".fused"))
    )
]


def drawn(call: OpCall, seed: int) -> Array:
    """Floats of both signs and very different magnitudes; or all negative, or all 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=call.input(0).shape) * rng.choice(
        [1e-3, 1.0, 40.0], call.input(0).shape
    )
    sign = (1.0, 1.0, 1.0, -1.0, 0.0)[seed % 5]
    return (x if sign == 1 else sign * np.abs(x)).astype(np.float32)


def floating(call: OpCall, seed: int) -> OpCall:
    """Return the layer with float32 tensors."""
    rng = np.random.default_rng(seed)
    constants = [
        None
        if c is None
        else Constant.from_array(c.name, rng.normal(size=c.shape), FLOAT32)
        for c in call.constants
    ]
    inputs = tuple(TensorType(kind.shape, FLOAT32) for kind in call.inputs)
    output = TensorType(call.output.shape, FLOAT32)
    return replace(call, inputs=inputs, outputs=(output,), constants=tuple(constants))


def hybrid(call: OpCall, seed: int) -> OpCall:
    """Return the layer after dynamic-range quantization, per tensor or per channel."""
    wide = floating(call, seed)
    weights = np.maximum(call.constants[1].array(), -127 - seed % 2)
    count = len(weights) if seed % 3 else 1
    scales = tuple(float(s) for s in np.linspace(0.01, 0.02, count, dtype=np.float32))
    quantized = Quantization(scales, (0,) * count, 0 if count > 1 else None)
    return replace(
        wide,
        op="hybrid_conv2d",
        inputs=(
            wide.input(0),
            TensorType(weights.shape, INT8, quantized),
            wide.input(2),
        ),
        constants=(None, Constant.from_array("w", weights, INT8), wide.constants[2]),
    )


def executed(call: OpCall, kernel: Kernel, x: Array) -> Array:
    """Return the kernel's output for `x`; the kernel must pass the verifier."""
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    y = np.full(call.output.shape, np.nan, np.float32)
    interpret(func, {"x": x, "y": y}, INTRINSICS, constants=kernel.constants)
    return y


def by_default(call: OpCall, x: Array) -> Array:
    kernel = Kernel("kernel", call)
    op_table()[call.op].lower(call, kernel)
    return executed(call, kernel, x)


def allowed(call: OpCall, x: Array) -> Array:
    """Error bound of an output: 2 eps per term, relative to the sum of magnitudes."""
    w, bias = (c.array() for c in call.constants[1:])
    magnitudes = [np.abs(values).astype(np.float64) for values in (x, w, bias)]
    plain = replace(
        call,
        attrs=replace(call.attributes(ActivationAttrs), activation="none"),
        constants=(
            None,
            *(Constant.from_array("m", values, FLOAT32) for values in magnitudes[1:]),
        ),
    )
    (reach,) = op_table()[call.op].reference(
        plain, [each.astype(np.float32) for each in magnitudes]
    )
    terms = w.size // call.output.shape[-1] + 1
    return np.asarray(2 * terms * np.finfo(np.float32).eps * reach)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("schedule", HYBRID, ids=lambda schedule: schedule.name)
def test_hybrid_schedules_match_the_reference(schedule, random_convolution) -> None:
    judged = 0
    for seed in range(16):
        call = hybrid(random_convolution(seed, depthwise=False), seed)
        x = drawn(call, seed)
        arrays = [x, *(c.array() for c in call.constants[1:])]
        (expected,) = op_table()[call.op].reference(call, arrays)
        np.testing.assert_array_equal(by_default(call, x), expected)
        for config in schedule.configs(call):
            kernel = Kernel("kernel", call)
            schedule.build(call, config, kernel)
            np.testing.assert_array_equal(executed(call, kernel, x), expected)
            judged += 1
    assert judged >= 16


def test_a_transposed_convolution_without_an_fpu_has_the_bits_of_the_default_loops() -> (
    None
):
    schedule = next(
        item for item in SCHEDULES if item.name == "soft_float.transpose_conv"
    )
    rng = np.random.default_rng(2)
    for stride, before, outputs in (((1, 1), (0, 0), (5, 5)), ((2, 3), (1, 0), (7, 8))):
        kinds = [
            TensorType(shape, FLOAT32) for shape in ((1, 3, 3, 5), (4, 3, 3, 5), (4,))
        ]
        x, *values = (rng.normal(size=kind.shape).astype(np.float32) for kind in kinds)
        call = OpCall(
            "transpose_conv",
            tuple(kinds),
            (TensorType((1, *outputs, 4), FLOAT32),),
            TransposeConvAttrs(stride=stride, before=before, activation="relu"),
            (None, *(Constant.from_array("c", value, FLOAT32) for value in values)),
        )
        (config,) = schedule.configs(call)
        kernel = Kernel("kernel", call)
        schedule.build(call, config, kernel)
        np.testing.assert_array_equal(executed(call, kernel, x), by_default(call, x))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("schedule", FLOAT, ids=lambda schedule: schedule.name)
def test_float_schedules_match_the_default_loops(
    schedule, random_convolution, random_row, random_fully_connected
) -> None:
    judged = 0
    depthwise = schedule.op == "depthwise_conv2d"
    for seed in range(6 if schedule.fuses else 12):
        if schedule.op == "fully_connected":
            calls = [random_fully_connected(seed)]
        else:
            calls = [
                random_convolution(seed, depthwise=depthwise),
                random_row(seed, depthwise=depthwise),
                random_row(seed, depthwise=depthwise, dilation=2),
            ]
        for call in (floating(drawn_call, seed) for drawn_call in calls):
            x = drawn(call, seed)
            expected = by_default(call, x)
            for config in schedule.configs(call):
                kernel = Kernel("kernel", call)
                schedule.build(call, config, kernel)
                actual = executed(call, kernel, x)
                if schedule.fuses:
                    assert np.all(np.abs(actual - expected) <= allowed(call, x))
                else:
                    np.testing.assert_array_equal(actual, expected)
                judged += 1
    of_one_channel = schedule.op == "conv2d" and schedule.name.startswith(
        "fpu.depthwise"
    )
    of_one_input_channel = schedule.name == "soft_float.depthwise_conv2d"
    assert judged >= (1 if of_one_input_channel else 3 if of_one_channel else 6)


def convolution(
    x: tuple[int, ...],
    outputs: int,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
) -> OpCall:
    rng = np.random.default_rng(len(x) + outputs)
    w = Constant.from_array("w", rng.normal(size=(outputs, *size, x[3])), FLOAT32)
    bias = Constant.from_array("bias", rng.normal(size=outputs), FLOAT32)
    tensors = (
        TensorType(x, FLOAT32),
        *(TensorType(c.shape, FLOAT32) for c in (w, bias)),
    )
    height, width = (
        (x[1 + n] + padding[2 * n] + padding[2 * n + 1] - size[n]) // stride[n] + 1
        for n in (0, 1)
    )
    attrs = {
        "stride": stride,
        "dilation": (1, 1),
        "padding": padding,
        "activation": "relu",
    }
    y = TensorType((x[0], height, width, outputs), FLOAT32)
    return OpCall(
        "conv2d", tensors, (y,), attrs_from_mapping("conv2d", attrs), (None, w, bias)
    )


WINDOWS = {
    "padded": convolution((1, 5, 6, 8), 8, (3, 3), (1, 1), (1, 1, 1, 1)),
    "stride": convolution((1, 7, 9, 4), 9, (3, 2), (2, 2), (1, 0, 1, 0)),
    "not padded": convolution((1, 6, 9, 5), 7, (2, 3), (1, 1), (0, 0, 0, 0)),
    "batch": convolution((2, 4, 4, 7), 5, (3, 3), (1, 1), (1, 1, 1, 1)),
    "one row": convolution((1, 1, 9, 3), 6, (1, 3), (1, 1), (0, 0, 1, 1)),
    "pointwise": convolution((2, 3, 3, 14), 6, (1, 1), (1, 1), (0, 0, 0, 0)),
}


@pytest.mark.parametrize("style", ["separate", "chained"])
@pytest.mark.parametrize("call", WINDOWS.values(), ids=WINDOWS)
def test_tiles_match_the_default_loops_in_place_and_packed(call, style) -> None:
    (schedule,) = (each for each in FLOAT if each.name == f"fpu.conv2d.{style}")
    x = drawn(call, 0)
    expected = by_default(call, x)
    for pixels, packed in ((2, False), (3, False), (4, False), (3, True), (1, True)):
        kernel = Kernel("kernel", call)
        schedule.build(call, FpuConfig(4, pixels, packed), kernel)
        np.testing.assert_array_equal(executed(call, kernel, x), expected)


def test_windows_are_packed_only_if_their_rows_are_short_or_the_band_is_large() -> None:
    (schedule,) = (each for each in FLOAT if each.name == "fpu.conv2d.separate")
    for name in ("padded", "not padded", "one row", "pointwise"):
        assert not schedule.configs(WINDOWS[name])[0].packed, name
    short = convolution((1, 6, 9, 2), 7, (3, 3), (1, 1), (0, 0, 0, 0))
    wide = convolution((1, 6, 40, 4), 8, (3, 3), (1, 1), (1, 1, 1, 1))
    for call in (short, wide):
        assert all(config.packed for config in schedule.configs(call))


def test_transposed_convolutions_without_overlap_match_the_default_loops() -> None:
    rng = np.random.default_rng(0)
    w = Constant.from_array("w", rng.normal(size=(5, 1, 2, 9)), FLOAT32)
    bias = Constant.from_array("bias", rng.normal(size=5), FLOAT32)
    x_type, *others = (
        TensorType(shape, FLOAT32) for shape in ((2, 3, 4, 9), w.shape, bias.shape)
    )
    attrs = TransposeConvAttrs(stride=(1, 2), before=(0, 0), activation="relu")
    y = TensorType((2, 3, 8, 5), FLOAT32)
    call = OpCall(
        "transpose_conv",
        (x_type, *others),
        (y,),
        attrs,
        (None, w, bias),
    )
    (schedule,) = (
        each for each in SCHEDULES if each.name == "fpu.transpose_conv.separate"
    )
    x, kernel = drawn(call, 0), Kernel("kernel", call)
    schedule.build(call, schedule.configs(call)[0], kernel)
    np.testing.assert_array_equal(executed(call, kernel, x), by_default(call, x))
    overlapping = replace(
        call,
        outputs=(TensorType((2, 3, 5, 5), FLOAT32),),
        attrs=replace(attrs, stride=(1, 1)),
    )
    assert schedule.configs(overlapping) == ()


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("schedule", POOLS, ids=lambda schedule: schedule.name)
def test_max_pools_match_the_default_loops(schedule, activation) -> None:
    judged = 0
    for channels, size, stride in (
        (14, (2, 2), (2, 2)),
        (8, (3, 3), (2, 1)),
        (3, (1, 4), (1, 1)),
    ):
        attrs = {
            "size": size,
            "stride": stride,
            "dilation": (1, 1),
            "padding": (0, 0, 0, 0),
            "activation": activation,
        }
        height, width = (
            (n - k) // s + 1 for n, k, s in zip((7, 6), size, stride, strict=True)
        )
        tensors = (
            TensorType(shape, FLOAT32)
            for shape in ((2, 7, 6, channels), (2, height, width, channels))
        )
        x_type, y = tensors
        call = OpCall(
            "max_pool2d",
            (x_type,),
            (y,),
            attrs_from_mapping("max_pool2d", attrs),
            (None,),
        )
        for seed in (0, 3, 4):
            x = drawn(call, seed)
            for config in schedule.configs(call):
                kernel = Kernel("kernel", call)
                schedule.build(call, config, kernel)
                np.testing.assert_array_equal(
                    executed(call, kernel, x), by_default(call, x)
                )
                judged += 1
    assert judged == (
        0 if schedule.name.startswith("fpu") and activation == "relu" else 9
    )
