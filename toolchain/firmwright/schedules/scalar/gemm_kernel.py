"""GEMM of int8 layers on cores without SIMD instructions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules import constant_channels, epilogue
from firmwright.schedules.scalar.microkernels import MicrokernelFamily, ScalarMicrokernel

# The input's zero point is folded into the bias, which is exact because padding holds the zero
# point. Micro-kernels (microkernels.py) multiply a few weight rows by the columns of a block.
# Constant channels are not computed, and the last block repeats its last row.


@dataclass(frozen=True, slots=True)
class ScalarGemm:
    """Constants of one layer, in blocks of `rows` weight rows."""

    outputs: int
    depth: int
    rows: int
    weights: tir.Buffer
    bias: tir.Buffer
    order: constant_channels.ChannelOrder
    constants: constant_channels.ConstantChannels
    epilogue: epilogue.RequantizeEpilogue

    @property
    def blocks(self) -> int:
        return len(self.order.rows) // self.rows

    def block(self, b: Kernel, index: ArithExpr) -> tuple[tir.AccessPtr, tir.AccessPtr]:
        """Return pointers to the weights and biases of block `index`."""
        size = self.rows * self.depth
        return (
            b.pointer(self.weights, index * size, size),
            b.pointer(self.bias, index * self.rows, self.rows),
        )


def plan_scalar_gemm(
    b: Kernel, op: OpCall, weights: Array, params: Requantization, rows_for: Callable[[int], int],
    dtype: DType = INT8, offset: int = 0,
) -> ScalarGemm:  # fmt: skip
    """Plan a layer with `weights` [output, tap], stored as `dtype` with `offset` added.

    `rows_for` returns the rows per block for a number of computed channels.
    """
    wide = weights.astype(np.int64)
    bias = epilogue.fold_zero_point_into_bias(op, wide)
    low, high = epilogue.accumulator_bounds(bias, wide)
    constants = constant_channels.find_constant_channels(b, params, low, high)
    outputs, depth = weights.shape
    rows = rows_for(outputs - len(constants.values) or 1)
    order = constant_channels.order_computed_channels(b, constants, rows)
    chosen = list(order.rows)
    params, bounds = constant_channels.select_channels(params, chosen), (low[chosen], high[chosen])
    packed = (wide[chosen] + offset).reshape(-1, rows, depth).transpose(0, 2, 1).reshape(-1)
    return ScalarGemm(
        outputs, depth, rows, b.constant("weights", packed, dtype),
        b.constant("bias", bias[chosen], INT32), order, constants,
        epilogue.make_epilogue(b, params, bounds, INT8, len(chosen)),
    )  # fmt: skip


def emit_scalar_gemm(
    b: Kernel, gemm: ScalarGemm, family: MicrokernelFamily, pixels: int, columns: tir.Buffer,
    at: ArithExpr,
) -> None:  # fmt: skip
    """Compute all channels of `pixels` pixels, starting at `at`, with micro-kernels of `family`."""
    shape = ScalarMicrokernel("bytes", gemm.rows, pixels, family.unrolled(gemm.depth))
    gemm.constants.emit_stores(b, at, pixels)
    with b.for_("group", gemm.blocks) as group:
        acc = b.reg("acc", INT32, shape.sums)
        w, start = gemm.block(b, group)
        x = b.pointer(columns, 0, pixels * gemm.depth)
        registers = [b.load(acc, [i]) for i in range(shape.sums)]
        b.evaluate(family.block(shape), [w, x, start, gemm.depth, gemm.depth, *registers])
        for row in range(shape.rows):
            index = group * shape.rows + row
            with (
                b.let("channel", gemm.order.channel(b, index)) as channel,
                gemm.epilogue.bind_channel(b, index) as finish,
                b.view(
                    "out", b.y, at * gemm.outputs + channel, (pixels,), strides=(gemm.outputs,),
                    access="w",
                ) as y,
            ):  # fmt: skip
                for pixel in range(pixels):
                    b.store(y, [pixel], finish(b.load(acc, [shape.place(row, pixel)])))


def fits_address_offsets(family: MicrokernelFamily, depth: int, pixels: int) -> bool:
    """Return whether load offsets reach every column of `depth` bytes from the first one."""
    return (pixels - 1) * depth + family.most_unrolled <= family.reach
