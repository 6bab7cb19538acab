"""depthwise_conv2d on the DSP extension: one channel at a time, directly on NHWC data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, Register, call_intrinsic, logical_and
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import bias_of, requantization_of, weight_offsets
from firmwright.ops.conv_window import ConvWindow, OutputPosition, window_of
from firmwright.ops.kernel import Kernel, Position
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.epilogue import (
    FinishElement,
    accumulator_bounds,
    fold_zero_point_into_bias,
    make_epilogue,
)
from firmwright.schedules.schedule_factories import dsp_schedule

# A channel's weights are widened to int16 pairs and stay in registers. For windows inside the
# input, taps are unrolled at constant offsets and the zero point is folded into the bias; at the
# border, taps are looped over and those outside are skipped.

_MAX_TAPS = 25


def _configs(op: OpCall) -> Sequence[Config]:
    taps = op.input(1).shape[1] * op.input(1).shape[2]
    return ({},) if op.input(0).dtype == INT8 and taps <= _MAX_TAPS else ()


@dataclass(frozen=True, slots=True)
class _DepthwiseConstants:
    window: ConvWindow
    zero_point: int
    packed: tir.Buffer
    bias: tir.Buffer
    folded: tir.Buffer


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weight_offsets(op)
    window = window_of(op, kernel.shape[1:3])
    flat = kernel.reshape(-1, kernel.shape[3]).T.astype(np.int64)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    bias = bias_of(op, "int32").astype(np.int64)
    folded = fold_zero_point_into_bias(op, flat)
    bounds = accumulator_bounds(folded, flat)
    epilogue = make_epilogue(b, requantization_of(op), bounds, INT8, len(flat))
    pairs = np.zeros((len(flat), 2 * (-(-flat.shape[1] // 2))), np.int16)
    pairs[:, : flat.shape[1]] = flat
    layer = _DepthwiseConstants(
        window,
        zero_point,
        b.constant("weights", pairs.view(np.uint32), UINT32),
        b.constant("bias", bias, INT32) if window.is_padded else b.y,
        b.constant("folded_bias", folded, INT32),
    )
    batch, height, width, channels = op.output.shape
    multiplier = channels // op.input(0).shape[3]
    with b.for_("c", channels) as channel:
        finish = epilogue.bind_channel(b, channel)
        pairs_of = [
            b.let(f"w{i}", b.load(layer.packed, [channel, i])) for i in range(layer.packed.shape[1])
        ]
        with b.for_("n", batch) as n, b.for_("oy", height) as oy, b.for_("ox", width) as ox:
            at = OutputPosition(n, oy, ox)
            _output(b, layer, at, channel, channel // multiplier, pairs_of, finish)


def _output(
    b: Kernel, layer: _DepthwiseConstants, at: OutputPosition, channel: ArithExpr,
    source: ArithExpr, weights: list[ArithExpr], finish: FinishElement,
) -> None:  # fmt: skip
    acc = b.register("acc", INT32)
    window = layer.window
    y0 = b.let("top", at.oy * window.stride[0] - window.padding[0])
    x0 = b.let("left", at.ox * window.stride[1] - window.padding[2])
    if not window.guarded(0) and not window.guarded(1):
        _inside(b, layer, acc, (at.n, y0, x0), channel, source, weights)
    else:
        height, width = window.input_size
        bottom = height - (window.size[0] - 1) * window.dilation[0]
        right = width - (window.size[1] - 1) * window.dilation[1]
        with b.if_(logical_and(y0 >= 0, y0 < bottom, x0 >= 0, x0 < right)):
            _inside(b, layer, acc, (at.n, y0, x0), channel, source, weights)
        with b.else_():
            _border(b, layer, acc, at, channel, source)
    b.store(b.y, [at.n, at.oy, at.ox, channel], finish(acc.value))


def _inside(
    b: Kernel, layer: _DepthwiseConstants, acc: Register, origin: Position, channel: ArithExpr,
    source: ArithExpr, weights: list[ArithExpr],
) -> None:  # fmt: skip
    x, window = b.input(0), layer.window
    _, height, width, channels = x.shape
    row = width * channels * window.dilation[0]
    column = channels * window.dilation[1]
    offset = ((origin[0] * height + origin[1]) * width + origin[2]) * channels + source
    acc.set(b.load(layer.folded, [channel]))
    taps = b.view("taps", x, offset, window.size, strides=(row, column))
    for tap in range(window.size[0] * window.size[1]):
        value = b.load(taps, list(divmod(tap, window.size[1]))).cast(INT32).cast(UINT32)
        name = "smlabb" if tap % 2 == 0 else "smlabt"
        acc.set(call_intrinsic(name, [value, weights[tap // 2], acc.value], INT32))


def _border(
    b: Kernel, layer: _DepthwiseConstants, acc: Register, at: OutputPosition, channel: ArithExpr,
    source: ArithExpr,
) -> None:  # fmt: skip
    window, words = layer.window, layer.packed.shape[1]
    acc.set(b.load(layer.bias, [channel]))
    w = b.view("halves", layer.packed, channel * words, (2 * words,), dtype=INT16)
    with window.taps(b, at) as (ky, kx, iy, ix):
        value = b.load_i32(b.input(0), [at.n, iy, ix, source]) - layer.zero_point
        weight = b.load_i32(w, [ky * window.size[1] + kx])
        acc.add(value * weight)


SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.channel",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
