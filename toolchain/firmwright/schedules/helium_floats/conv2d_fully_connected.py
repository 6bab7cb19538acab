"""float32 conv2d and fully_connected on Helium: GEMM over im2col columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.helium_floats import accumulate_f32, microkernels
from firmwright.schedules.helium_floats.accumulate_f32 import AccumulateStyle
from firmwright.schedules.helium_floats.microkernels import VectorTile
from firmwright.schedules.im2col import WindowPacker
from firmwright.schedules.row_band import pixel_blocks
from firmwright.schedules.schedule_factories import helium_float_schedule

# The columns of a few output pixels are packed by vectors and multiplied by every
# channel group (microkernels.py). A single pixel of a pointwise convolution and a row
# of a fully connected layer need no packing. The last channel group and pixel block
# overlap their predecessors.

_COPY = 3
"""Approximate instructions to pack one element of a window."""


@dataclass(frozen=True, slots=True)
class FloatVectorIm2colPacker(WindowPacker):
    """Packs windows into `columns` [element, pixel] by vectors."""

    @property
    def pixels(self) -> int:
        return self.columns.shape[1]

    def points(self, at: ArithExpr) -> None:
        depth = self.x.shape[3]
        for pixel in range(self.pixels):
            self.move((at + pixel) * depth, 0, pixel, depth)

    def zero(self, first: ArithExpr, pixel: ArithExpr, count: int) -> None:
        name = f"mve_zero_f32_{self.pixels}"
        self.b.evaluate(name, [self._column(first * self.pixels + pixel, count), count])

    def move(
        self,
        offset: ArithExpr,
        first: ArithExpr | int,
        pixel: ArithExpr | int,
        count: int,
    ) -> None:
        column = self._column(first * self.pixels + pixel, count)
        source = self.b.pointer(self.x, offset, count)
        self.b.evaluate(f"mve_spread_f32_{self.pixels}", [column, source, count])

    def _column(self, place: ArithExpr | int, count: int) -> tir.AccessPtr:
        return self.b.pointer(self.columns, place, self.pixels * (count - 1) + 1, "rw")


def _plan_gemm(
    op: OpCall, b: Kernel, style: AccumulateStyle, tile: VectorTile
) -> BlockGemm:
    flat = np.asarray(weights_of(op)).reshape(op.input(1).shape[0], -1)
    contract = tile.contract
    blocks = ChannelBlocks(len(flat), contract.channels)
    weights = b.constant(
        "weights",
        contract.layout.pack(blocks.rows(flat)).reshape(blocks.count, -1),
        FLOAT32,
    )
    bias = b.constant(
        "bias", blocks.rows(bias_of(op, "float32")).reshape(blocks.count, -1), FLOAT32
    )
    activation = op.attributes(ActivationAttrs).activation
    return BlockGemm(
        contract,
        lambda taps: microkernels.microkernel_name(style, tile),
        len(flat),
        weights,
        [bias],
        [accumulate_f32.ACTIVATION_CODES[activation], blocks.stored],
        flat.shape[1],
    )


def _configs(style: AccumulateStyle, op: OpCall) -> Sequence[VectorTile]:
    if op.input(0).dtype != FLOAT32:
        return ()
    packing = 1 if kernel_window(op).pointwise else _COPY
    outputs = op.input(1).shape[0]
    depth = op.input(1).elements // outputs
    pixels = op.output.elements // outputs if op.op == "conv2d" else 1
    tiles = microkernels.tiles_for_style(style)
    fitting = [tile for tile in tiles if tile.pixels <= pixels]

    def cost(tile: VectorTile) -> tuple[int, int]:
        groups = divide_up(outputs, tile.lanes)
        gemm = groups * microkernels.microkernel_instructions(style, tile, depth, 1)
        packed = 0
        if tile.pixels > 1 or packing > 1:
            packed = packing * tile.pixels * depth
        return divide_up(pixels, tile.pixels) * (gemm + packed), -tile.sums

    best = min(fitting, key=cost)
    single = min([tile for tile in fitting if tile.pixels == 1], key=cost)
    return (best,) if best == single else (best, single)


def _build(style: AccumulateStyle, op: OpCall, tile: VectorTile, b: Kernel) -> None:
    window = kernel_window(op)
    gemm = _plan_gemm(op, b, style, tile)
    pixels = op.output.elements // gemm.blocks.channels
    size = tile.pixels * gemm.taps
    with pixel_blocks(b, pixels, tile.pixels) as at:
        outputs = [at + pixel for pixel in range(tile.pixels)]
        if window.pointwise and tile.pixels == 1:
            gemm.emit(b, [b.pointer(b.input(0), at * gemm.taps, size)], outputs)
            return
        columns = b.allocate("columns", FLOAT32, (gemm.taps, tile.pixels))
        FloatVectorIm2colPacker(b, window, b.input(0), columns).pack(op, at)
        gemm.emit(b, [b.pointer(columns, 0, size)], outputs)


SCHEDULES = tuple(
    helium_float_schedule(
        f"helium.{op}.{style}",
        op,
        configs=partial(_configs, style),
        build=partial(_build, style),
        fuses=style == "fused",
    )
    for style in accumulate_f32.ACCUMULATE_STYLES
    for op in ("conv2d", "fully_connected")
)
