"""conv2d and fully_connected on Armv6-M: one pixel and eight output channels at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config
from firmwright.ops import conv2d, fully_connected
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, tensor_quant
from firmwright.schedules.constant_channels import (
    ChannelOrder,
    ConstantChannels,
    find_constant_channels,
    order_computed_channels,
    select_channels,
)
from firmwright.schedules.epilogue import (
    RequantizeEpilogue,
    accumulator_bounds,
    fold_zero_point_into_bias,
    make_epilogue,
)
from firmwright.schedules.scalar.conv2d import pack_columns
from firmwright.schedules.scalar.thumb1_microkernels import ROWS, WEIGHT_OFFSET, microkernel_name
from firmwright.schedules.schedule_factories import thumb1_schedule

# The column of a pixel is the input itself for pointwise convolutions; otherwise it is packed as in
# conv2d.py. Micro-kernels multiply weights with 128 added, so 128 times the column's sum is
# subtracted. Constant channels are not computed.

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class _Thumb1Gemm:
    outputs: int
    depth: int
    weights: tir.Buffer
    bias: tir.Buffer
    order: ChannelOrder
    constant_channels: ConstantChannels
    epilogue: RequantizeEpilogue

    def emit(self, b: Kernel, column: tir.Buffer, at: ArithExpr) -> None:
        self.constant_channels.emit_stores(b, at, 1)
        with (
            _offset(b, column) as offset,
            b.allocate("sums", INT32, (ROWS,)) as sums,
            b.for_("group", len(self.order.rows) // ROWS) as group,
        ):
            w = b.pointer(self.weights, group * (ROWS * self.depth), ROWS * self.depth)
            start = b.pointer(self.bias, group * ROWS, ROWS)
            x = b.pointer(column, 0, self.depth)
            b.evaluate(
                microkernel_name(self.depth),
                [w, x, start, b.pointer(sums, 0, ROWS, "w"), self.depth],
            )
            with ExitStack() as stack:
                row = stack.enter_context(b.for_("row", ROWS))
                index = stack.enter_context(b.let("index", group * ROWS + row))
                channel = stack.enter_context(b.let("channel", self.order.channel(b, index)))
                finish = stack.enter_context(self.epilogue.bind_channel(b, index))
                total = stack.enter_context(b.let("total", b.load(sums, [row]) - offset))
                y = stack.enter_context(
                    b.view("out", b.y, at * self.outputs, (self.outputs,), access="w")
                )
                b.store(y, [channel], finish(total))


@contextmanager
def _offset(b: Kernel, column: tir.Buffer) -> Iterator[ArithExpr]:
    """Yield 128 times the column's sum, the excess of its products."""
    depth = column.shape[1]
    unroll = next(n for n in (_UNROLL, 2, 1) if depth % n == 0)
    total = b.reg("total", INT32)
    b.store(total, [0], 0)
    with b.for_("k", depth // unroll) as k, b.for_("u", unroll, kind="unrolled") as u:
        b.store(total, [0], b.load(total, [0]) + b.load_i32(column, [0, k * unroll + u]))
    with b.let("offset", b.load(total, [0]) * WEIGHT_OFFSET) as offset:
        yield offset


def _plan(b: Kernel, op: OpCall, weights: Array, params: Requantization) -> _Thumb1Gemm:
    wide = weights.astype(np.int64)
    bias = fold_zero_point_into_bias(op, wide)
    low, high = accumulator_bounds(bias, wide)
    constant_channels = find_constant_channels(b, params, low, high)
    order = order_computed_channels(b, constant_channels, ROWS)
    chosen = list(order.rows)
    outputs, depth = weights.shape
    packed = (wide[chosen] + WEIGHT_OFFSET).reshape(-1, ROWS, depth).transpose(0, 2, 1).reshape(-1)
    return _Thumb1Gemm(
        outputs,
        depth,
        b.constant("weights", np.ascontiguousarray(packed), UINT8),
        b.constant("bias", bias[chosen], INT32),
        order,
        constant_channels,
        make_epilogue(
            b, select_channels(params, chosen), (low[chosen], high[chosen]), INT8, len(chosen)
        ),
    )


def _configs(op: OpCall) -> Sequence[Config]:
    return ({},) if op.input(0).dtype == op.input(1).dtype == INT8 else ()


def _build_convolution(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = conv2d.weights_of(op)
    gemm = _plan(b, op, kernel.reshape(len(kernel), -1), conv2d.requantization_of(op))
    window = window_of(op, kernel.shape[1:3])
    zero_point = tensor_quant(op.input(0)).zero_point
    with (
        b.for_("pixel", op.output.elements // len(kernel)) as at,
        pack_columns(b, op, zero_point, window, at, (1, gemm.depth)) as column,
    ):
        gemm.emit(b, column, at)


def _matrix_configs(op: OpCall) -> Sequence[Config]:
    return _configs(op) if _configs(op) and fully_connected.has_int32_multiplier(op) else ()


def _build_matrix(op: OpCall, config: Config, b: Kernel) -> None:
    weights = conv2d.weights_of(op)
    gemm = _plan(b, op, weights, fully_connected.requantization_of(op))
    with (
        b.for_("n", op.output.elements // len(weights)) as n,
        b.view("row", b.input(0), n * gemm.depth, (1, gemm.depth)) as column,
    ):
        gemm.emit(b, column, n)


SCHEDULES = (
    thumb1_schedule("thumb1.conv2d.rows", "conv2d", configs=_configs, build=_build_convolution),
    thumb1_schedule(
        "thumb1.fully_connected.rows",
        "fully_connected",
        configs=_matrix_configs,
        build=_build_matrix,
    ),
)
