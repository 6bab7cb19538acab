"""Tiles of the GEMM (gemm.py) without vectors.

Weights are stored with an offset: their zero point, and 128 for micro-kernels that load
unsigned bytes. The products of a column are then too large by the offset times the
column's sum.

Families of unsigned operands multiply columns with 128 added, too. Their products are
then also too large by 128 times the weights' sum, which is folded into the bias.
"""

import math
from dataclasses import dataclass
from itertools import product

from firmwright.base.dtypes import INT8, INT32, UINT32
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr
from firmwright.kernels.contract import (
    BiasAdder,
    InterleavedChannels,
    TileContract,
)
from firmwright.kernels.scalar.gemm import ScalarMicrokernel, is_contiguous
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import KERNEL_ALIGNMENT, Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.computed_channels import ComputedChannels
from firmwright.schedules.gemm import Correction, Gemm, GroupOperands, Tile
from firmwright.schedules.im2col import RowIm2colPacker
from firmwright.schedules.row_band import pixel_blocks
from firmwright.schedules.scalar.microkernels import MicrokernelFamily

_UNROLL = 4


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """The offset of stored weights, and whether sums of products may exceed 32 bits."""

    offset: int
    may_wrap: bool

    def sum_columns(
        self, b: Kernel, columns: tir.Buffer, taps: int
    ) -> Correction | None:
        """Return how sums are corrected for `columns` [pixel, tap]."""
        if not self.offset:
            return None
        excess: list[ArithExpr] = []
        for pixel in range(columns.shape[0]):
            total = b.register("total", INT32, 0)
            with b.unrolled("k", taps, _UNROLL, 2) as k:
                total.add(b.load_i32(columns, [pixel, k]))
            total.set(total.value * self.offset)
            excess.append(total.value)
        return self.subtract(excess)

    def subtract(self, excess: list[ArithExpr]) -> Correction:
        """Return the correction by the excess of each pixel, exact modulo 2^32."""

        def correct(total: ArithExpr, place: int, pixel: int) -> ArithExpr:
            if self.may_wrap:
                return (total.cast(UINT32) - excess[pixel].cast(UINT32)).cast(INT32)
            return total - excess[pixel]

        return correct


def stored_offset(
    rows: ComputedChannels, offset: int, column_offset: int = 0
) -> StoredOffset:
    """Return the offset of weights, for columns with `column_offset` added."""
    greatest = max(-INT8.min, INT8.max + column_offset)
    low, high = rows.bounds
    exact = max(-int(low.min()), int(high.max()))
    return StoredOffset(offset, exact + rows.taps * greatest * abs(offset) > INT32.max)


@dataclass(frozen=True, slots=True)
class LoopTile(Tile[tir.Buffer]):
    """A micro-kernel of `family` that loops over all taps and loads the bias."""

    family: MicrokernelFamily
    channels: int
    pixels: int
    taps: int
    stored: StoredOffset

    @property
    def contract(self) -> TileContract:
        family = self.family
        layout = InterleavedChannels(
            family.dtype, (self.channels,), self.stored.offset, family.taps_per_step
        )
        return TileContract(self.channels, self.pixels, layout, BiasAdder.MICROKERNEL)

    @property
    def steps(self) -> int:
        return divide_up(self.taps, self.family.taps_per_step)

    def prepare(
        self, b: Kernel, columns: tir.Buffer
    ) -> tuple[tir.Buffer, Correction | None]:
        if self.family.offset:
            return self._with_offset(b, columns)
        correct = self.stored.sum_columns(b, columns, self.taps)
        if self.family.taps_per_step > 1:
            size, dtype = (self.pixels * self.steps,), self.family.dtype
            columns = b.view("words", columns, 0, size, dtype=dtype, alignment=4)
        return columns, correct

    def _with_offset(
        self, b: Kernel, columns: tir.Buffer
    ) -> tuple[tir.Buffer, Correction]:
        """Return columns as tiles of unsigned elements."""
        dtype = self.family.dtype
        tiles = b.allocate("tiles", dtype, (self.taps, self.pixels))
        totals = [b.register("total", INT32, 0) for _ in range(self.pixels)]
        with b.unrolled("k", self.taps, _UNROLL, 2) as k:
            for pixel, total in enumerate(totals):
                element = b.load_i32(columns, [pixel, k]) + self.family.offset
                value = b.let("value", element)
                b.store(tiles, [k, pixel], value.cast(dtype))
                total.add(value)
        for total in totals:
            total.set(total.value * self.stored.offset)
        return tiles, self.stored.subtract([total.value for total in totals])

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        family = self.family
        unroll = family.unrolled(self.steps)
        shape = ScalarMicrokernel(family.layout, self.channels, self.pixels, unroll)
        x = b.pointer(columns, 0, self.pixels * self.steps)
        w, start = group.weight_pointer(b), group.bias_pointer(b)
        apart = self.steps if is_contiguous(family.layout) else 1
        registers = [b.load(sums, [place]) for place in range(shape.sums)]
        b.evaluate(family.block(shape), [w, x, start, apart, self.steps, *registers])


@dataclass(frozen=True, slots=True)
class CompiledTile(Tile[tir.Buffer]):
    """Products that the compiler allocates registers for, of int8 or float32.

    Each load feeds several multiplications, and sums stay in registers. Groups at the
    end may be narrower.
    """

    layout: InterleavedChannels
    pixels: int
    unroll: int

    @property
    def contract(self) -> TileContract:
        return TileContract(self.layout.widths[0], self.pixels, self.layout)

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        taps = columns.shape[1]
        shape = (taps, group.channels)
        w = b.view("w", group.weights, group.start, shape)
        steps, remainder = divmod(taps, self.unroll)
        if steps:
            unrolled = b.for_("u", self.unroll, kind="unrolled")
            with b.for_("j", steps) as j, unrolled as u:
                _add_products(b, sums, columns, w, j * self.unroll + u)
        for k in range(taps - remainder, taps):
            _add_products(b, sums, columns, w, ArithExpr(as_expr(k)))


def _add_products(
    b: Kernel, sums: tir.Buffer, columns: tir.Buffer, w: tir.Buffer, k: ArithExpr
) -> None:
    """Add the products of tap `k` of all channels and columns."""
    count, channels = columns.shape[0], w.shape[1]
    inputs: list[ArithExpr] = []
    for column in range(count):
        value = b.load(columns, [column, k]).cast(sums.dtype)
        inputs.append(b.let("x", value))
    for channel in range(channels):
        weight = b.let("weight", b.load(w, [k, channel]).cast(sums.dtype))
        for column, value in enumerate(inputs):
            at = channel * count + column
            b.store(sums, [at], b.load(sums, [at]) + value * weight)


# ---- layers --------------------------------------------------------------------------


def pack_columns(
    b: Kernel,
    op: OpCall,
    zero_point: int,
    at: ArithExpr,
    shape: tuple[int, int],
    *,
    has_unaligned_words: bool = False,
) -> tir.Buffer:
    """Return the windows of output pixels, starting at `at`, packed one per row.

    The pixels of a pointwise convolution are multiplied in place, unless rows are
    longer than windows; they end with zeros.
    """
    window = kernel_window(op)
    taps = math.prod(op.input(1).shape[1:])
    if window.pointwise and shape[1] == taps:
        aligned = math.gcd(taps, KERNEL_ALIGNMENT)
        return b.view("pixels", b.input(0), at * taps, shape, alignment=aligned)
    image = b.input(0)
    if op.op == "fully_connected":
        image = b.view("image", image, 0, (image.elements // taps, 1, 1, taps))
    columns = b.allocate("columns", image.dtype, shape)
    for pixel, tap in product(range(shape[0]), range(taps, shape[1])):
        b.store(columns, [pixel, tap], 0)
    packer = RowIm2colPacker(b, window, image, columns, zero_point, has_unaligned_words)
    packer.pack(op, at)
    return columns


def multiply_windows(
    b: Kernel,
    op: OpCall,
    gemm: Gemm[tir.Buffer],
    *,
    has_unaligned_words: bool = False,
) -> None:
    """Multiply the windows of all output pixels, a block of pixels after the other."""
    x, w = op.input(0), op.input(1)
    at_once = gemm.tile.contract.layout.taps_per_step
    taps = divide_up(w.elements // w.shape[0], at_once) * at_once
    zero_point = per_tensor_quant(x).zero_point if x.dtype == INT8 else 0
    with pixel_blocks(b, op.output.elements // w.shape[0], gemm.pixels) as at:
        columns = pack_columns(
            b,
            op,
            zero_point,
            at,
            (gemm.pixels, taps),
            has_unaligned_words=has_unaligned_words,
        )
        gemm.emit(b, columns, at)
