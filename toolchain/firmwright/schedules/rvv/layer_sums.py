"""Layers whose requantization vectors of integers do not have.

ONNX Runtime requantizes in float32, which integers do only for some factors. Sums of
all channels are in lanes, and those of a block of pixels become outputs one by one, as
on cores without vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT16
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.fully_connected import has_int32_multiplier
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point, per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.computed_channels import IntegerLayer, integer_layer
from firmwright.schedules.epilogue import by_arithmetic, make_epilogue
from firmwright.schedules.rvv.conv2d_fully_connected import choose_loop
from firmwright.schedules.rvv.depthwise_conv2d import (
    DepthwiseBlocks,
    DepthwiseKernel,
    has_short_offsets,
)
from firmwright.schedules.rvv.endings import SUMS
from firmwright.schedules.rvv.layer_endings import layer_ending
from firmwright.schedules.rvv.window_kernel import (
    WindowCall,
    adjacent_taps,
    emit_windows,
    window_extents,
)

_ENDING = SUMS[INT8]


def _has_sums(op: OpCall) -> bool:
    """Whether a layer has no ending in vectors, and sums that fit 32 bits."""
    if has_weight_zero_point(op) or layer_ending(op):
        return False
    low, high = integer_layer(op).bounds
    return bool(low.min() >= INT32.min and high.max() <= INT32.max)


def sums_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration of layers whose sums of bytes fit 32 bits."""
    if not op.input(0).dtype == op.input(1).dtype == INT8:
        return ()
    match op.op:
        case "depthwise_conv2d":
            fits = has_short_offsets(op)
        case "fully_connected":
            fits = has_int32_multiplier(op)
        case _:
            fits = adjacent_taps(kernel_window(op), 1) is not None
    return (NO_CONFIG,) if fits and _has_sums(op) else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    """Compute a layer whose channels read the same inputs."""
    layer, window = integer_layer(op), kernel_window(op)
    extents, outputs = window_extents(op, window), len(layer.weights)
    loop = choose_loop(_ENDING, layer.weights, extents.rows, extents.pixels)
    call = _sums_call(op, b, layer, loop.name, loop.pixels)
    emit_windows(b, window, call, outputs, (extents.run, 1, 1))


def _build_depthwise(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    layer, blocks = integer_layer(op), DepthwiseBlocks.of(op)
    gathers = blocks.offsets is not None
    loop = DepthwiseKernel(_ENDING, blocks.pixels, gathers=gathers)
    call = _sums_call(op, b, layer, loop.name, blocks.pixels, blocks.repeats)
    if blocks.offsets is not None:
        offsets = b.constant("offsets", blocks.offsets, UINT16)
        call = replace(call, tables=(*call.tables, offsets))
    outputs = len(layer.weights)
    emit_windows(b, blocks.window, call, outputs, blocks.columns, blocks.repeats)


def _sums_call(
    op: OpCall,
    b: Kernel,
    layer: IntegerLayer,
    name: str,
    pixels: int,
    repeats: int = 1,
) -> WindowCall:
    """Return the micro-kernel `name` with its tables, repeated for adjacent pixels."""
    outputs = len(layer.weights)
    starts = np.tile(layer.bias, repeats)
    sums = b.allocate("sums", INT32, (pixels * repeats, outputs))
    return WindowCall(
        name,
        pixels,
        b.constant("weights", np.tile(layer.weights.T, repeats), INT8),
        (b.constant("starts", starts, INT32),),
        padding=per_tensor_quant(op.input(0)).zero_point,
        sums=sums,
        finish=_finisher(b, layer, sums),
    )


def _finisher(
    b: Kernel, layer: IntegerLayer, sums: tir.Buffer
) -> Callable[[ArithExpr], None]:
    """Return the writer of the outputs of sums [pixel, channel] from a pixel on."""
    pixels, outputs = sums.shape
    assert layer.requantization is not None
    epilogue = make_epilogue(b, layer.requantization, layer.bounds, INT8, outputs)

    def finish(at: ArithExpr) -> None:
        y = b.view("out", b.y, at * outputs, sums.shape, access="w")
        bind = epilogue.bind_group(b)
        with b.for_("o", outputs) as o:
            for form in by_arithmetic(b, bind(o, 0)):
                with b.unrolled("p", pixels, 6, 4, 3, 2) as p:
                    b.store(y, [p, o], form(b.load(sums, [p, o])))

    return finish


_rvv = partial(Schedule, requires=frozenset({"rvv"}), configs=sums_configs)
SCHEDULES = (
    _rvv("rvv.conv2d.sums", "conv2d", build=_build),
    _rvv("rvv.fully_connected.sums", "fully_connected", build=_build),
    _rvv("rvv.depthwise_conv2d.sums", "depthwise_conv2d", build=_build_depthwise),
)
