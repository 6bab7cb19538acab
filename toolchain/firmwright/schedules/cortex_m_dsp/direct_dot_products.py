"""int16 and transposed convolutions on the DSP extension, without im2col."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.ir.tir.schedule import Config
from firmwright.ops import transpose_conv
from firmwright.ops.conv2d import bias_of, requantization_of, weights_of, window_taps
from firmwright.ops.conv_window import output_positions
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.epilogue import RequantizeEpilogue, accumulator_bounds, make_epilogue
from firmwright.schedules.schedule_factories import dsp_schedule

# Every tap inside the input is a run of channels; four of them take two SMLAD per output channel,
# up to four channels at once. int16 values are pairs in memory. int8 values are widened by SXTB16
# and shifted to zero by SADD16, so taps outside the input contribute nothing. Weights stay bytes,
# in the order in which SXTB16 delivers them. Requires a multiple of four channels and 32-bit sums.

TAPS = 4
HALVES = ("sxtb16", "sxtb16_ror8")
_DTYPES = {"conv2d": (INT16,), "transpose_conv": (INT8, INT16)}


def _configs(op: OpCall) -> Sequence[Config]:
    x, w = op.input(0), op.input(1)
    applies = (
        x.dtype in _DTYPES[op.op] and w.shape[-1] % TAPS == 0 and accumulator_dtype(op, 0) == INT32
    )
    rows = next(count for count in (4, 2, 1) if w.shape[0] % count == 0)
    return ({"rows": rows},) if applies else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    rows, kernel = int(config["rows"]), weights_of(op)
    channels, steps = len(kernel), kernel.shape[-1] // TAPS
    is_wide = op.input(0).dtype == INT16
    weights = b.constant("weights", pack_weight_words(kernel, rows, is_wide=is_wide), UINT32)
    bias = b.constant("bias", bias_of(op, "int32"), INT32)
    x_shape, y_shape = op.input(0).shape, op.output.shape
    words = (*x_shape[:3], steps, op.input(0).dtype.size_bytes)
    epilogue = _make_epilogue(op, b, kernel)
    open_taps = transpose_conv.taps if op.op == "transpose_conv" else window_taps
    x = b.view("words", b.input(0), 0, words, dtype=UINT32, alignment=4)
    y = b.view("out", b.y, 0, (*y_shape[:3], channels), access="w")
    with output_positions(b, y_shape) as at, b.for_("group", channels // rows) as group:
        acc = b.reg("acc", INT32, rows)
        for row in range(rows):
            b.store(acc, [row], b.load(bias, [group * rows + row]))
        with open_taps(op, b, at) as (ky, kx, iy, ix), b.for_("i", steps) as i:
            _accumulate(b, acc, _pairs(op, b, x, [at.n, iy, ix, i]), weights, [group, ky, kx, i])
        for row in range(rows):
            channel = group * rows + row
            finish = epilogue.bind_channel(b, channel)
            b.store(y, [at.n, at.oy, at.ox, channel], finish(b.load(acc, [row])))


def _accumulate(
    b: Kernel, acc: tir.Buffer, pairs: Sequence[ArithExpr], weights: tir.Buffer,
    at: Sequence[ArithExpr],
) -> None:  # fmt: skip
    for row in range(acc.shape[0]):
        word = b.let("w", b.load(weights, [*at, row]))
        for name, pair in zip(HALVES, pairs, strict=True):
            spread = call_intrinsic(name, [word], UINT32)
            b.store(acc, [row], call_intrinsic("smlad", [pair, spread, b.load(acc, [row])], INT32))


def _pairs(op: OpCall, b: Kernel, x: tir.Buffer, at: Sequence[ArithExpr]) -> Sequence[ArithExpr]:
    """Yield two words, each with two values minus the zero point."""
    if op.input(0).dtype == INT16:
        low = b.let("x01", b.load(x, [*at, 0]))
        high = b.let("x23", b.load(x, [*at, 1]))
        return low, high
    zero = -per_tensor_quant(op.input(0)).zero_point & 0xFFFF
    word = b.let("word", b.load(x, [*at, 0]))
    wide = [call_intrinsic(name, [word], UINT32) for name in HALVES]
    if zero:
        offset = ArithExpr(immediate(zero << 16 | zero, UINT32))
        wide = [call_intrinsic("sadd16", [pair, offset], UINT32) for pair in wide]
    low = b.let("x02", wide[0])
    high = b.let("x13", wide[1])
    return low, high


def pack_weight_words(kernel: Array, rows: int, *, is_wide: bool) -> Array:
    """Pack weights as words [group, ky, kx, four taps, row].

    SXTB16 extracts bytes 0 and 2, then 1 and 3. With `is_wide`, activations are int16 in
    memory order.
    """
    channels, height, width, depth = kernel.shape
    shape = (channels // rows, rows, height, width, depth // TAPS, TAPS)
    order = (0, 2, 1, 3) if is_wide else (0, 1, 2, 3)
    split = kernel.astype(np.int8).reshape(shape).transpose(0, 2, 3, 4, 1, 5)[..., order]
    return np.ascontiguousarray(split).view(np.uint32)[..., 0]


def _make_epilogue(op: OpCall, b: Kernel, kernel: Array) -> RequantizeEpilogue:
    zero_point, dtype = per_tensor_quant(op.input(0)).zero_point, op.input(0).dtype
    low, high = dtype.min - zero_point, dtype.max - zero_point
    bounds = accumulator_bounds(bias_of(op, "int32"), kernel, low, high)
    return make_epilogue(b, requantization_of(op), bounds, op.output.dtype, len(kernel))


SCHEDULES = tuple(
    dsp_schedule(f"dsp.{op}.direct", op, configs=_configs, build=_build) for op in _DTYPES
)
