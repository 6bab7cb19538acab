"""int8 conv2d and fully_connected with int4 weights, for --optimize size."""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import INT8, UINT8, Array
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Register
from firmwright.ops.conv2d import bias_of, requantization_of, weights_of
from firmwright.ops.conv_window import output_positions, window_of
from firmwright.ops.fully_connected import int8_requantization
from firmwright.ops.int16x8 import accumulator_dtype, requantize_epilogue
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

# A row is the range of the innermost loop: the weights of an output or, for a
# convolution, of one tap. Two weights share a byte, each with 8 added, the first in the
# low half; an odd row ends with half a byte. This halves the flash of the weights and
# takes about 50 % more time. A layer qualifies by the values of its int8 weights.

_OFFSET = 8


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != INT8:
        return ()
    weights = weights_of(op)
    is_narrow = weights.min() >= -_OFFSET and weights.max() < _OFFSET
    return (NO_CONFIG,) if is_narrow and weights.shape[-1] > 1 else ()


def pack_int4_weights(weights: Array) -> Array:
    halves = (weights.astype(np.int16) + _OFFSET).astype(np.uint8)
    if halves.shape[-1] % 2:
        halves = np.concatenate([halves, np.zeros_like(halves[..., :1])], axis=-1)
    return np.asarray(halves[..., ::2] | halves[..., 1::2] << 4)


def _add_row(
    b: Kernel,
    acc: Register,
    count: int,
    byte: Callable[[ArithExpr | int], ArithExpr],
    x: Callable[[ArithExpr | int], ArithExpr],
) -> None:
    """Add `count` products to `acc`; `x` returns int32, `byte` a pair of weights."""

    def add(both: ArithExpr, first: ArithExpr | int, halves: int) -> None:
        weights = ((both & 15) - _OFFSET, (both >> 4) - _OFFSET)
        for k in range(halves):
            product = x(first + k) * weights[k]
            acc.add(product.cast(acc.buffer.dtype))

    with b.for_("pair", count // 2) as pair:
        add(b.let("weight_pair", byte(pair)), pair * 2, 2)
    if count % 2:
        add(b.let("last", byte(count // 2)), count - 1, 1)


def _build_fully_connected(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    weights = weights_of(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    (outputs, inputs), wide = weights.shape, accumulator_dtype(op, 0)
    sums = weights.sum(axis=1, dtype=np.int64)
    bias = b.constant("bias", bias_of(op, "int32") - zero_point * sums, wide)
    halves = b.constant("halves", pack_int4_weights(weights), UINT8)
    finish = requantize_epilogue(b, int8_requantization(op), wide, INT8)
    with b.for_("n", op.output.elements // outputs) as n:
        row = b.view("row", b.input(0), n * inputs, (inputs,))
        out = b.view("out", b.y, n * outputs, (outputs,), access="w")
        with b.for_("o", outputs) as o:
            acc = b.register("acc", wide, b.load(bias, [o]))
            _add_row(
                b,
                acc,
                inputs,
                lambda pair: b.load_i32(halves, [o, pair]),
                lambda i: b.load_i32(row, [i]),
            )
            b.store(out, [o], finish(acc.value, o))


def _build_conv2d(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    weights = weights_of(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    outputs, height, width, inputs = weights.shape
    wide = accumulator_dtype(op, 0)
    bias = b.constant("bias", bias_of(op, "int32"), wide)
    halves = b.constant("halves", pack_int4_weights(weights), UINT8)
    finish = requantize_epilogue(b, requantization_of(op), wide, INT8)
    window = window_of(op, (height, width))
    with output_positions(b, op.output.shape) as at, b.for_("oc", outputs) as oc:
        acc = b.register("acc", wide, b.load(bias, [oc]))
        with window.taps(b, at) as (ky, kx, iy, ix):
            _add_row(
                b,
                acc,
                inputs,
                lambda pair: b.load_i32(halves, [oc, ky, kx, pair]),
                lambda i: b.load_i32(b.input(0), [at.n, iy, ix, i]) - zero_point,
            )
        b.store(b.y, [at.n, at.oy, at.ox, oc], finish(acc.value, oc))


SCHEDULES = tuple(
    Schedule(f"scalar.{op}.int4", op, frozenset(), _configs, build, goal="size")
    for op, build in (
        ("conv2d", _build_conv2d),
        ("fully_connected", _build_fully_connected),
    )
)
