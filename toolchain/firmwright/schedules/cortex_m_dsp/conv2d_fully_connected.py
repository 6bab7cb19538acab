"""conv2d and fully_connected on the DSP extension: im2col and register-blocked GEMM."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from firmwright.base.dtypes import INT8, UINT8, UINT32
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.ops import fully_connected
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import (
    has_weight_zero_point,
    per_tensor_quant,
    weight_zero_point,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.computed_channels import integer_layer
from firmwright.schedules.cortex_m_dsp.gemm_tiles import (
    ByteColumnTile,
    Int4Tile,
    PairTile,
    TileMaker,
    fits_int4,
    plan_dsp_gemm,
)
from firmwright.schedules.cortex_m_dsp.im2col import (
    ROW_MOVES,
    Im2colLayout,
    Im2colPacker,
)
from firmwright.schedules.cortex_m_dsp.microkernels import (
    MAX_UNROLL,
    SHORT_UNROLL,
    alternative_unrolls,
    default_unroll,
    has_same_steps,
)
from firmwright.schedules.gemm import Gemm
from firmwright.schedules.row_band import pixel_blocks, window_rows
from firmwright.schedules.schedule_factories import dsp_schedule

# A block of output pixels is packed as columns (im2col.py); the GEMM kernel then
# multiplies each channel block by all of them with SMLAD. The input's zero point is
# folded into the bias, which is exact because padding holds the zero point.
#
# With `code=shared`, for the goal `size`, layers of many shapes have the same code: no
# number that simplification would use (a stride of 1, one tap) is a literal;
# requantization has one form.
#
# fully_connected widens the input vector once to int16 pairs in the order of SXTB16,
# and each block of eight weight rows multiplies it. With `input=bytes` the vector stays
# int8: it needs no scratch memory, and each block widens it again.

CHANNELS_BY_PIXELS = {4: 2, 2: 4, 1: 8}
"""Pixels per block -> output channels per block; always eight accumulators."""
_WORD = 4


@dataclass(frozen=True, slots=True)
class Im2colConfig(ScheduleConfig):
    """The configuration of a convolution: a block's pixels, and how it is computed."""

    pixels: int
    order: Literal["forward", "backward"] = "forward"
    weights: Literal["int8", "int4"] = "int8"
    steps: int | None = None
    """The steps of a micro-kernel call, by default the most that the layer permits."""
    code: Literal["own", "shared"] = "own"
    source: Literal["input", "band"] = "input"
    """Where windows are read: in the input, or in a padded copy of its rows."""

    @property
    def is_for_overlap(self) -> bool:
        return self.order == "backward"


@dataclass(frozen=True, slots=True)
class RowsConfig(ScheduleConfig):
    """The configuration of a matrix: a block's rows, and the form of the vector."""

    rows: int
    input: Literal["int16", "bytes"] = "int16"
    steps: int | None = None
    """The steps of a micro-kernel call, by default the most that the layer permits."""


def _configs(op: OpCall) -> Sequence[Im2colConfig]:
    if op.input(0).dtype != INT8 or op.attributes(WindowAttrs).dilation[1] != 1:
        return ()
    pixels = op.output.elements // op.output.shape[3]
    configs: list[Im2colConfig] = []
    for count in CHANNELS_BY_PIXELS:
        if count <= pixels:
            configs.append(Im2colConfig(count))
        if 1 < count < pixels:
            configs.append(Im2colConfig(count, order="backward"))
    configs += _band_configs(op)
    most = max(CHANNELS_BY_PIXELS)
    if pixels >= most and _fits_int4(op):
        widest = [config for config in configs if config.pixels == most]
        configs += [replace(config, weights="int4") for config in widest]
    return configs


def _band_configs(op: OpCall) -> list[Im2colConfig]:
    window, width = kernel_window(op), op.output.shape[2]
    is_short = layer_layout(op).row_elements < _WORD
    if is_short or not (window.guarded(0) or window.guarded(1)):
        return []
    counts = [count for count in CHANNELS_BY_PIXELS if width % count == 0]
    return [Im2colConfig(count, source="band") for count in counts[:2]]


def _fits_int4(op: OpCall) -> bool:
    layer = integer_layer(op)
    return not has_weight_zero_point(op) and fits_int4(layer_layout(op), layer)


def _shared_configs(op: OpCall) -> Sequence[Im2colConfig]:
    fits = Im2colConfig(2) in _configs(op) and op.output.shape[0] == 1
    if not fits or op.input(1).shape[-1] % _WORD or has_weight_zero_point(op):
        return ()
    words = layer_layout(op).words
    fitting = [steps for steps in (8, 4) if words % steps == 0]
    return [Im2colConfig(2, steps=steps, code="shared") for steps in fitting]


def _space(op: OpCall) -> Sequence[Im2colConfig]:
    unrolls = alternative_unrolls(layer_layout(op).words)
    configs = [config for config in _configs(op) if config.weights == "int8"]
    return [replace(config, steps=steps) for config in configs for steps in unrolls]


def _short_loops(op: OpCall, config: Im2colConfig) -> Im2colConfig:
    words = layer_layout(op).words
    if config.weights == "int4":
        return replace(config, steps=default_unroll(words // 2, SHORT_UNROLL))
    steps = default_unroll(words, SHORT_UNROLL)
    return config if has_same_steps(words, steps) else replace(config, steps=steps)


def _build(op: OpCall, config: Im2colConfig, b: Kernel) -> None:
    layout = layer_layout(op)
    block = block_pixels(config.pixels, op.output.elements // op.output.shape[3])
    is_int4, is_shared = config.weights == "int4", config.code == "shared"
    tile: TileMaker = partial(Int4Tile, steps=config.steps)
    if not is_int4:
        tile = partial(PairTile, pixels=block, steps=config.steps, is_shared=is_shared)
    gemm = plan_dsp_gemm(
        b,
        layout,
        integer_layer(op),
        CHANNELS_BY_PIXELS[block],
        tile,
        weight_zero_point(op),
        is_int4=is_int4,
        is_shared=is_shared,
    )
    zero_point = per_tensor_quant(op.input(0)).zero_point
    source = Im2colSource(
        b.input(0), layout, zero_point, has_shares=is_int4, is_shared=is_shared
    )
    if config.source == "band":
        _convolve_band(b, source, gemm)
        return
    backward = config.order == "backward"
    convolve_in_blocks(b, source, gemm, op.output.shape, backward=backward)


def layer_layout(op: OpCall) -> Im2colLayout:
    return Im2colLayout(kernel_window(op), op.input(1).shape[-1])


def block_pixels(requested: int, pixels: int) -> int:
    most = min(requested, pixels)
    return next(count for count in CHANNELS_BY_PIXELS if count <= most)


@dataclass(frozen=True, slots=True)
class Im2colSource:
    """An int8 input, its column layout, and its zero point.

    With `has_shares`, columns have another word (`Int4Tile`). If `is_shared`, code does
    not depend on shapes.
    """

    x: tir.Buffer
    layout: Im2colLayout
    zero_point: int | ArithExpr
    has_shares: bool = False
    is_shared: bool = False


def convolve_in_blocks(
    b: Kernel,
    source: Im2colSource,
    gemm: Gemm[tir.Buffer],
    shape: Sequence[int],
    first: ArithExpr | int = 0,
    *,
    backward: bool = False,
) -> None:
    """Convolve block by block; the output of `shape` begins at output pixel `first`."""
    layout = source.layout
    window = source.layout.window
    block = gemm.pixels
    _, out_height, out_width, _ = shape
    rows = shape[0] * out_height
    pixels = rows * out_width
    in_rows = out_width % block == 0 and not window.pointwise and not source.is_shared
    with Nest() as enter:
        if in_rows:
            row = _counted(b, enter, "row", rows, backward=backward)
            groups = out_width // block
            group = _counted(b, enter, "group", groups, backward=backward)
            first_column = group * block
            at = b.let("at", row * out_width + first_column)
        else:
            blocks = pixel_blocks(b, pixels, block, backward=backward)
            if source.is_shared:
                blocks = _shared_blocks(b, pixels, block)
            at = enter(blocks)
        words = layout.words + source.has_shares
        columns = b.allocate("columns", UINT32, (words, block), 8)
        point = source.zero_point
        packer = Im2colPacker(b, layout, columns, source.x, point, source.is_shared)
        if window.pointwise and not source.is_shared:
            packer.points([(at + p) * layout.channels for p in range(block)])
        elif in_rows:
            packer.block(_position(b, window, row, first_column, shape))
        else:
            with b.for_("p", block) as p:
                pixel = b.let("pixel", at + p)
                row = pixel // out_width
                column = pixel % out_width
                origin = _position(b, window, row, column, shape, source.is_shared)
                packer.pixel(origin, p)
        gemm.emit(b, columns, at + first)


def _convolve_band(b: Kernel, source: Im2colSource, gemm: Gemm[tir.Buffer]) -> None:
    """Convolve row by row; every window is inside a padded copy of its input rows."""
    layout, point = source.layout, source.zero_point
    block, width = gemm.pixels, b.y.shape[2]
    distance = layout.window.stride[1] * layout.channels
    with (
        window_rows(b, layout.window, point, ROW_MOVES) as (rows, start, pitch, row),
        pixel_blocks(b, width, block) as column,
    ):
        words = layout.words + source.has_shares
        columns = b.allocate("columns", UINT32, (words, block), 8)
        first = start + column * distance
        packer = Im2colPacker(b, layout, columns, rows, point)
        packer.inside([first + p * distance for p in range(block)], pitch)
        gemm.emit(b, columns, row * width + column)


@contextmanager
def _shared_blocks(b: Kernel, pixels: int, block: int) -> Iterator[ArithExpr]:
    """Loop over pixel blocks by the same code for all numbers of pixels."""
    with b.for_("block", divide_up(pixels, block)) as index:
        start = index * block + b.variable("zero", 0, UINT8)
        yield b.let("at", minimum(start, pixels - block))


def _position(
    b: Kernel,
    window: ConvWindow,
    row: ArithExpr,
    column: ArithExpr,
    shape: Sequence[int],
    is_shared: bool = False,
) -> Position:
    """Return an output's window origin (n, y, x); `row` counts through the batch."""
    batch, height, _, _ = shape
    n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
    fixed = (*window.stride, *window.padding[::2])
    numbers = [b.variable("shape", value) if is_shared else value for value in fixed]
    top = oy * numbers[0] - numbers[2]
    left = column * numbers[1] - numbers[3]
    return n, b.let("top", top), b.let("left", left)


def _counted(
    b: Kernel, enter: Nest, name: str, count: int, *, backward: bool
) -> ArithExpr:
    index = enter(b.for_(name, count))
    return b.let(f"{name}_down", (count - 1) - index) if backward else index


def _matrix_configs(op: OpCall) -> Sequence[RowsConfig]:
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    outputs, depth = op.input(1).shape
    rows = next((count for count in (8, 4, 2) if count <= outputs + 1), 0)
    if not rows or not fully_connected.has_int32_multiplier(op):
        return ()
    whole_words = depth % _WORD == 0
    if not whole_words or has_weight_zero_point(op):
        return (RowsConfig(rows),)
    return (RowsConfig(rows), RowsConfig(rows, input="bytes"))


def _matrix_space(op: OpCall) -> Sequence[RowsConfig]:
    unrolls = alternative_unrolls(layer_layout(op).words)
    first = _matrix_configs(op)[:1]
    return [replace(config, steps=steps) for config in first for steps in unrolls]


def _matrix_short_loops(op: OpCall, config: RowsConfig) -> RowsConfig:
    words = layer_layout(op).words
    most = MAX_UNROLL
    if config.input == "bytes":
        words, most = words // 2, MAX_UNROLL // 2
    steps = default_unroll(words, SHORT_UNROLL)
    is_same = has_same_steps(words, steps, most)
    return config if is_same else replace(config, steps=steps)


def _build_matrix(op: OpCall, config: RowsConfig, b: Kernel) -> None:
    outputs, depth = op.input(1).shape
    layout = layer_layout(op)
    in_bytes = config.input == "bytes"
    tile: TileMaker = partial(PairTile, pixels=1, steps=config.steps)
    if in_bytes:
        tile = partial(ByteColumnTile, steps=config.steps)
    zero_point = weight_zero_point(op)
    gemm = plan_dsp_gemm(b, layout, integer_layer(op), config.rows, tile, zero_point)
    with b.for_("n", op.output.elements // outputs) as n:
        x, at = b.input(0), n * depth
        if in_bytes:
            size = (depth // _WORD,)
            words = b.view("words", x, at, size, dtype=UINT32, alignment=4)
            gemm.emit(b, words, n)
            return
        wide = b.allocate("wide", UINT32, (layout.words, 1))
        zero_point = per_tensor_quant(op.input(0)).zero_point
        Im2colPacker(b, layout, wide, x, zero_point).points([at])
        gemm.emit(b, wide, n)


SCHEDULES = (
    dsp_schedule(
        "dsp.conv2d.im2col",
        "conv2d",
        configs=_configs,
        build=_build,
        space=_space,
        short_loops=_short_loops,
        takes_weight_zero_point=True,
    ),
    dsp_schedule(
        "dsp.fully_connected.rows",
        "fully_connected",
        configs=_matrix_configs,
        build=_build_matrix,
        space=_matrix_space,
        short_loops=_matrix_short_loops,
        takes_weight_zero_point=True,
    ),
    dsp_schedule(
        "dsp.conv2d.shared_im2col",
        "conv2d",
        configs=_shared_configs,
        build=_build,
        goal="size",
    ),
)
