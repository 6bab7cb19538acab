"""float32 conv_nd: filters and windows are packed at run time for the GEMM kernel."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ConvNdAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.contract import divide_channels
from firmwright.ops.conv_pool_nd import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule
from firmwright.schedules.fpu.conv2d_fully_connected import (
    SOFT_CONFIG,
    FloatTile,
    FpuConfig,
    Windows,
    group_widths,
    tile_configs,
)
from firmwright.schedules.fpu.microkernels import (
    ALL_STYLES,
    MultiplyAddStyle,
    schedule_name,
)
from firmwright.schedules.gemm import float_gemm
from firmwright.schedules.row_band import pixel_blocks

_COPY = 5
"""Approximate cycles to pack one element of a window."""


def _configs(style: MultiplyAddStyle, op: OpCall) -> Sequence[FpuConfig]:
    attrs = op.attributes(ConvNdAttrs)
    if op.input(0).dtype != FLOAT32 or attrs.groups > 1 or op.output.shape[0] > 1:
        return ()
    if style is None:
        return (SOFT_CONFIG,)
    filters, *window = op.input(1).shape
    depth = math.prod(window)
    pixels = math.prod(op.output.shape[2:])
    return tile_configs(filters, pixels, depth, _COPY * depth)[:1]


def _build(style: MultiplyAddStyle, op: OpCall, config: FpuConfig, b: Kernel) -> None:
    tile = config.tile
    filters, channels, *size = op.input(1).shape
    taps = math.prod(size)
    pixels = math.prod(op.output.shape[2:])
    w = b.view("w", b.input(1), 0, (filters, channels, taps))
    packed = b.allocate("filters", FLOAT32, (w.elements,))
    for part in divide_channels(filters, group_widths(tile)):
        first, lanes = part.first, part.channels
        shape = (part.count, taps, channels, lanes)
        groups = b.view("groups", packed, first * channels * taps, shape, access="w")
        with b.loops("group tap c", shape[:3]) as (group, tap, c):
            for lane in range(lanes):
                value = b.load(w, [group * lanes + (first + lane), c, tap])
                b.store(groups, [group, tap, c, lane], value)
    no_bias = np.zeros(filters, np.float32)
    bias = b.input(2) if op.has_input(2) else b.constant("bias", no_bias, FLOAT32)
    depth = channels * taps
    float_tile = FloatTile(style, tile, depth)
    gemm = float_gemm(float_tile, packed, bias, lambda total: total, (1, pixels))
    with pixel_blocks(b, pixels, tile.pixels) as at:
        columns = b.allocate("columns", FLOAT32, (tile.pixels, taps, channels))
        with b.for_("p", tile.pixels) as p:
            _pack_window(op, b, columns, at, p)
        gemm.emit(b, Windows(columns, 0, depth), at)


def _pack_window(
    op: OpCall, b: Kernel, columns: tir.Buffer, at: ArithExpr, p: ArithExpr
) -> None:
    """Pack the window of output `at + p` as column `p`."""
    _, taps, channels = columns.shape
    rest = b.let("pixel", at + p)
    index = list[ArithExpr]()
    for extent in op.output.shape[:1:-1]:
        index.insert(0, rest % extent)
        rest = rest // extent
    with b.loops("tap c", (taps, channels)) as (tap, c):
        b.store(columns, [p, tap, c], 0.0)
    window = window_of(op, op.input(1).shape[2:])
    with window.taps(b, index) as (places, positions):
        tap = places[0]
        for place, extent in zip(places[1:], window.size[1:], strict=True):
            tap = tap * extent + place
        with b.unrolled("c", channels, 4, 3, 2) as c:
            b.store(columns, [p, tap, c], b.load(b.input(0), [0, c, *positions]))


SCHEDULES = tuple(
    Schedule(
        schedule_name(style, "conv_nd"),
        "conv_nd",
        requires,
        partial(_configs, style),
        partial(_build, style),
        disable_scheduling=True,
    )
    for style, requires in ALL_STYLES
)
