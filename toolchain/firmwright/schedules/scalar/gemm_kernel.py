"""GEMM of int8 layers on cores without SIMD instructions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.contract import InterleavedChannels
from firmwright.kernels.scalar.gemm import ScalarMicrokernel, is_contiguous
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules import epilogue, skip_constant_channels
from firmwright.schedules.scalar.microkernels import MicrokernelFamily

# The input's zero point is folded into the bias, which is exact because padding holds
# the zero point. Micro-kernels (microkernels.py) multiply a few weight rows by the
# columns of a block. Constant channels are not computed, and the last block repeats its
# last row.
#
# Weights with a zero point are multiplied as stored; the products of a column are then
# too large by the zero point times the column's sum.
#
# Families of unsigned operands multiply columns with 128 added, too. Their products are
# then also too large by 128 times the weights' sum, which is folded into the bias.

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class ScalarGemm:
    """The constants of one layer, in blocks of `rows` weight rows.

    Weights are stored with `offset` added. Micro-kernels multiply the `depth` taps in
    `steps`.

    `may_wrap` is set if sums of products with stored weights may exceed 32 bits.
    """

    outputs: int
    depth: int
    steps: int
    rows: int
    offset: int
    may_wrap: bool
    weights: tir.Buffer
    bias: tir.Buffer
    order: skip_constant_channels.ChannelOrder
    constants: skip_constant_channels.ConstantChannels
    epilogue: epilogue.RequantizeEpilogue

    @property
    def blocks(self) -> int:
        return len(self.order.rows) // self.rows

    def block(self, b: Kernel, index: ArithExpr) -> tuple[tir.AccessPtr, tir.AccessPtr]:
        """Return pointers to the weights and biases of block `index`."""
        size = self.rows * self.steps
        return (
            b.pointer(self.weights, index * size, size),
            b.pointer(self.bias, index * self.rows, self.rows),
        )


def plan_scalar_gemm(
    b: Kernel,
    op: OpCall,
    weights: Array,
    params: Requantization,
    rows_for: Callable[[int], int],
    dtype: DType = INT8,
    offset: int = 0,
    encode: Callable[[Array, Array], tuple[Array, Array]] | None = None,
    in_32_bits: bool = False,
    column_offset: int = 0,
    taps_per_step: int = 1,
) -> ScalarGemm:
    """Plan a layer with `weights` [output, tap] relative to their zero point.

    They are stored as `dtype` with `offset` added, which the caller has to correct, and
    a step of the micro-kernel multiplies `taps_per_step`. Columns have `column_offset`
    added.

    `rows_for` returns the rows per block for a number of computed channels; `encode`
    replaces the layout of weights and biases.
    """
    wide = weights.astype(np.int64)
    bias = epilogue.fold_zero_point_into_bias(op, wide)
    low, high = epilogue.accumulator_bounds(bias, wide)
    constants = skip_constant_channels.find_constant_channels(b, params, low, high)
    outputs, depth = weights.shape
    rows = rows_for(outputs - len(constants.values) or 1)
    order = skip_constant_channels.order_computed_channels(b, constants, rows)
    chosen = list(order.rows)
    params = skip_constant_channels.select_channels(params, chosen)
    bounds = (low[chosen], high[chosen])
    if encode is None:
        layout = InterleavedChannels(dtype, (rows,), offset, taps_per_step)
        packed = layout.pack(wide[chosen])
        start = bias[chosen] - column_offset * wide[chosen].sum(axis=1)
    else:
        packed, start = encode(wide[chosen], bias[chosen])
    greatest = max(-INT8.min, INT8.max + column_offset)
    most = max(-int(low.min()), int(high.max())) + depth * greatest * abs(offset)
    preference = epilogue.FormPreference.FITTED
    if in_32_bits:
        preference = epilogue.FormPreference.NARROW
    return ScalarGemm(
        outputs=outputs,
        depth=depth,
        steps=divide_up(depth, taps_per_step),
        rows=rows,
        offset=offset,
        may_wrap=most > INT32.max,
        weights=b.constant("weights", packed, dtype),
        bias=b.constant("bias", start, INT32),
        order=order,
        constants=constants,
        epilogue=epilogue.make_epilogue(
            b, params, bounds, INT8, len(chosen), preference=preference
        ),
    )


def emit_scalar_gemm(
    b: Kernel,
    gemm: ScalarGemm,
    family: MicrokernelFamily,
    pixels: int,
    columns: tir.Buffer,
    at: ArithExpr,
) -> None:
    """Compute all channels of `pixels` pixels from `at` on with kernels of `family`."""
    unroll = family.unrolled(gemm.steps)
    shape = ScalarMicrokernel(family.layout, gemm.rows, pixels, unroll)
    gemm.constants.emit_stores(b, at, pixels)
    if family.offset:
        columns, excess = _add_offset(b, gemm, family, pixels, columns)
    else:
        excess = [sum_column(b, gemm, columns, pixel) for pixel in range(pixels)]
    if family.taps_per_step > 1:
        size = (pixels * gemm.steps,)
        columns = b.view("words", columns, 0, size, dtype=family.dtype, alignment=4)
    with b.for_("group", gemm.blocks) as group:
        acc = b.reg("acc", INT32, shape.sums)
        w, start = gemm.block(b, group)
        x = b.pointer(columns, 0, pixels * gemm.steps)
        registers = [b.load(acc, [i]) for i in range(shape.sums)]
        name, steps = family.block(shape), gemm.steps
        apart = steps if is_contiguous(family.layout) else 1
        b.evaluate(name, [w, x, start, apart, steps, *registers])
        for row in range(shape.rows):
            index = group * shape.rows + row
            channel = b.let("channel", gemm.order.channel(b, index))
            finish = gemm.epilogue.bind_channel(b, index)
            place = at * gemm.outputs + channel
            step = (gemm.outputs,)
            y = b.view("out", b.y, place, (pixels,), strides=step, access="w")
            for form in epilogue.by_arithmetic(b, finish):
                for pixel in range(pixels):
                    total = b.load(acc, [shape.place(row, pixel)])
                    exact = subtract_excess(gemm, total, excess[pixel])
                    b.store(y, [pixel], form(exact))


def _add_offset(
    b: Kernel,
    gemm: ScalarGemm,
    family: MicrokernelFamily,
    pixels: int,
    columns: tir.Buffer,
) -> tuple[tir.Buffer, list[ArithExpr | None]]:
    """Return columns as tiles of unsigned elements, and the excess of products."""
    tiles = b.allocate("tiles", family.dtype, (gemm.depth, pixels))
    totals = [b.register("total", INT32, 0) for _ in range(pixels)]
    with b.unrolled("k", gemm.depth, _UNROLL, 2) as k:
        for pixel, total in enumerate(totals):
            element = b.load_i32(columns, [pixel, k]) + family.offset
            value = b.let("value", element)
            b.store(tiles, [k, pixel], value.cast(family.dtype))
            total.add(value)
    for total in totals:
        total.set(total.value * gemm.offset)
    return tiles, [total.value for total in totals]


def sum_column(
    b: Kernel, gemm: ScalarGemm, columns: tir.Buffer, pixel: int
) -> ArithExpr | None:
    """Return by how much products of column `pixel` are too large; None if exact."""
    if not gemm.offset:
        return None
    total = b.register("total", INT32, 0)
    with b.unrolled("k", gemm.depth, _UNROLL, 2) as k:
        total.add(b.load_i32(columns, [pixel, k]))
    total.set(total.value * gemm.offset)
    return total.value


def subtract_excess(
    gemm: ScalarGemm, total: ArithExpr, excess: ArithExpr | None
) -> ArithExpr:
    """Correct a sum, which is exact modulo 2^32."""
    if excess is None:
        return total
    if gemm.may_wrap:
        return (total.cast(UINT32) - excess.cast(UINT32)).cast(INT32)
    return total - excess


def fits_address_offsets(family: MicrokernelFamily, depth: int, pixels: int) -> bool:
    """Return whether the offsets of loads reach every column of `depth` bytes."""
    apart = family.column_bytes(depth) * (pixels - 1)
    last = apart + family.most_unrolled * family.taps_per_step
    return not is_contiguous(family.layout) or last <= family.reach
