"""GEMM kernel of int8 conv2d and fully_connected on cores without SIMD instructions."""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import Requantization
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
from firmwright.schedules.scalar.microkernels import MicrokernelFamily, ScalarMicrokernel

# The input's zero point is folded into the bias, which is exact because padding holds the zero
# point. Micro-kernels (microkernels.py) multiply a few weight rows by the columns of a block.
# Constant channels are not computed, and the last block repeats its last row.


@dataclass(frozen=True, slots=True)
class ScalarGemmKernel:
    """Constants of one layer and its micro-kernel."""

    family: MicrokernelFamily
    shape: ScalarMicrokernel
    outputs: int
    depth: int
    weights: tir.Buffer
    bias: tir.Buffer
    order: ChannelOrder
    constant_channels: ConstantChannels
    epilogue: RequantizeEpilogue

    def emit(self, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
        shape = self.shape
        self.constant_channels.emit_stores(b, at, shape.pixels)
        with b.for_("group", len(self.order.rows) // shape.rows) as group:
            acc = b.reg("acc", INT32, shape.sums)
            w = b.pointer(self.weights, group * (shape.rows * self.depth), shape.rows * self.depth)
            x = b.pointer(columns, 0, shape.pixels * self.depth)
            start = b.pointer(self.bias, group * shape.rows, shape.rows)
            registers = [b.load(acc, [i]) for i in range(shape.sums)]
            name = self.family.block(shape)
            b.evaluate(name, [w, x, start, self.depth, self.depth, *registers])
            for row in range(shape.rows):
                self._store(b, acc, at, group * shape.rows + row, row)

    def _store(self, b: Kernel, acc: tir.Buffer, at: ArithExpr, index: ArithExpr, row: int) -> None:
        """Requantize and store row `row` of the block, which is row `index` of the tables."""
        with Nest() as enter:
            channel = enter(b.let("channel", self.order.channel(b, index)))
            finish = enter(self.epilogue.bind_channel(b, index))
            window = b.view(
                "out", b.y, at * self.outputs + channel, (self.shape.pixels,),
                strides=(self.outputs,), access="w",
            )  # fmt: skip
            y = enter(window)
            for pixel in range(self.shape.pixels):
                b.store(y, [pixel], finish(b.load(acc, [self.shape.place(row, pixel)])))


def fits_address_offsets(family: MicrokernelFamily, depth: int, pixels: int) -> bool:
    """Return whether load offsets reach every column of `depth` bytes from the first one."""
    return (pixels - 1) * depth + family.most_unrolled <= family.reach


def plan_scalar_gemm(
    b: Kernel,
    family: MicrokernelFamily,
    op: OpCall,
    weights: Array,
    params: Requantization,
    pixels: int,
) -> ScalarGemmKernel:
    wide = weights.astype(np.int64)
    bias = fold_zero_point_into_bias(op, wide)
    low, high = accumulator_bounds(bias, wide)
    constant_channels = find_constant_channels(b, params, low, high)
    outputs, depth = weights.shape
    rows = family.rows(outputs - len(constant_channels.values) or 1, pixels)
    order = order_computed_channels(b, constant_channels, rows)
    chosen = list(order.rows)
    packed = weights[chosen].reshape(-1, rows, depth).transpose(0, 2, 1).reshape(-1)
    return ScalarGemmKernel(
        family,
        ScalarMicrokernel("bytes", rows, pixels, family.unrolled(depth)),
        outputs,
        depth,
        b.constant("weights", np.ascontiguousarray(packed), INT8),
        b.constant("bias", bias[chosen], INT32),
        order,
        constant_channels,
        make_epilogue(
            b, select_channels(params, chosen), (low[chosen], high[chosen]), INT8, len(chosen)
        ),
    )
