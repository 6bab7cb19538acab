"""float32 conv2d, fully_connected and transpose_conv: windows times filters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import TransposeConvAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.kernels.contract import (
    BiasAdder,
    InterleavedChannels,
    TileContract,
    divide_channels,
)
from firmwright.kernels.vfp.gemm import (
    STEPS_PER_ITERATION,
    FpuTile,
    MultiplyAdd,
    element_instructions,
)
from firmwright.ops import transpose_conv
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import ConvWindow, OutputPosition, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.fpu.microkernels import (
    ALL_STYLES,
    FPU_TILES,
    SOFT_TILE,
    MultiplyAddStyle,
    activated,
    microkernel_name,
    schedule_name,
)
from firmwright.schedules.gemm import (
    Correction,
    Gemm,
    GroupOperands,
    Tile,
    float_gemm,
)
from firmwright.schedules.im2col import RowIm2colPacker
from firmwright.schedules.row_band import (
    RowMoves,
    band_width,
    pixel_blocks,
    window_rows,
)

# y[p, o] = activation(sum over k of window[p, k] * w[o, k], + bias[o]), in that order.


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of adjacent pixels, `pitch` elements apart from `start`.

    The `rows` of a window are `row_pitch` apart.
    """

    x: tir.Buffer
    start: ArithExpr | int
    pitch: int
    rows: int = 1
    row_pitch: int = 0


@dataclass(frozen=True, slots=True)
class FloatTile(Tile[Windows]):
    """A tile of the GEMM (gemm.py) of a style, for windows of `taps` elements.

    The last groups of channels are smaller.
    """

    style: MultiplyAddStyle
    shape: FpuTile
    taps: int

    @property
    def contract(self) -> TileContract:
        layout = InterleavedChannels(FLOAT32, group_widths(self.shape))
        lanes, pixels = self.shape.lanes, self.shape.pixels
        return TileContract(lanes, pixels, layout, BiasAdder.EPILOGUE)

    def prepare(self, b: Kernel, columns: Windows) -> tuple[Windows, Correction | None]:
        return columns, None

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: Windows, sums: tir.Buffer
    ) -> None:
        rows, pixels = columns.rows, self.shape.pixels
        run = self.taps // rows
        extent = (pixels - 1) * columns.pitch + (rows - 1) * columns.row_pitch + run
        numbers = [run]
        if self.style is not None:
            numbers.append(columns.pitch)
        if rows > 1:
            numbers += [rows, columns.row_pitch - run]
        integers = [ArithExpr(immediate(number, INT32)) for number in numbers]
        tile = FpuTile(group.channels, pixels)
        name = microkernel_name(self.style, tile, run, tall=rows > 1)
        registers: list[ArithExpr] = []  # those of a pixel are adjacent
        for pixel, lane in product(range(pixels), range(group.channels)):
            registers.append(b.load(sums, [lane * pixels + pixel]))
        w = group.weight_pointer(b)
        x = b.pointer(columns.x, columns.start, extent)
        b.evaluate(name, [w, x, *integers, *registers])


def group_widths(tile: FpuTile) -> tuple[int, ...]:
    """Return the channels of groups (`divide_channels`)."""
    return tile.lanes, 4


@dataclass(frozen=True, slots=True)
class FpuConfig(ScheduleConfig):
    """The configuration of a float layer: its tile, and whether windows are packed."""

    lanes: int
    pixels: int
    packed: bool = False

    @property
    def tile(self) -> FpuTile:
        return FpuTile(self.lanes, self.pixels)


def _plan_gemm(
    op: OpCall, b: Kernel, style: MultiplyAddStyle, config: FpuConfig
) -> Gemm[Windows]:
    """Return a layer's constants, the weights packed for the tile in `config`."""
    weights = _matrix(op, is_scattered=style is None)
    outputs, taps = weights.shape
    tile = FloatTile(style, config.tile, taps)
    packed = b.constant("weights", tile.contract.layout.pack(weights), FLOAT32)
    bias = bias_of(op, "float32")
    biases = b.constant("bias", np.tile(bias, outputs // len(bias)), FLOAT32)
    return float_gemm(tile, packed, biases, partial(activated, op), (outputs, 1))


def _matrix(op: OpCall, *, is_scattered: bool) -> Array:
    """Return the weights [outputs, depth]; see `_pack_taps` for `is_scattered`."""
    weights = weights_of(op)
    if op.op == "depthwise_conv2d":  # of one input channel
        weights = np.moveaxis(weights[0], 2, 0)
    elif op.op == "transpose_conv" and not is_scattered:
        return np.moveaxis(weights, 2, 0).reshape(-1, weights.shape[3])
    return weights.reshape(len(weights), -1)


def tile_configs(
    outputs: int,
    pixels: int,
    depth: int,
    packing: float,
    row: int = 0,
    rows: int = 1,
    band: float = 0.0,
) -> Sequence[FpuConfig]:
    """Return the cheapest configuration and, if it differs, the cheapest of one pixel.

    `packing` is the cost of packing the window of a pixel, in cycles; 0: windows are
    contiguous. If they can be multiplied in place, `row` is the number of pixels in a
    row of the output, `rows` that of a window and `band` the cost of copying the input
    of a pixel.
    """

    def cost(config: FpuConfig) -> float:
        tile = config.tile
        if config.packed:
            blocks = divide_up(pixels, tile.pixels)
        else:
            blocks = pixels // row * divide_up(row, tile.pixels)
        work = tile.pixels * (packing if config.packed else band)
        tall = 8 * rows + 4 if rows > 1 and not config.packed else 0
        for group in divide_channels(outputs, group_widths(tile)):
            lanes = group.channels
            part = FpuTile(lanes, tile.pixels)
            steps = element_instructions(
                MultiplyAdd.SEPARATE, part, STEPS_PER_ITERATION
            )
            cycles = (steps + 5) / STEPS_PER_ITERATION + lanes + tile.pixels
            work += group.count * (cycles * depth + 8 + tall)
        return blocks * (work + 5 * outputs * tile.pixels)

    candidates: list[FpuConfig] = []
    for tile in FPU_TILES:
        if tile.pixels <= row and (tile.pixels > 1 or rows == 1):
            candidates.append(FpuConfig(tile.lanes, tile.pixels))
    for tile in FPU_TILES:
        if tile.pixels <= pixels and packing:
            candidates.append(FpuConfig(tile.lanes, tile.pixels, packed=True))
    best = min(candidates, key=cost)
    is_packed = packing > 0
    singles = [
        each for each in candidates if each.pixels == 1 and each.packed == is_packed
    ]
    return list(dict.fromkeys((best, min(singles, key=cost))))


# Windows of a few output pixels are multiplied by every channel group
# (`FloatTile`). They are read from the input or, if padded, from a band, which is
# a copy of the input rows of an output row, or packed one by one (im2col.py). The last
# block overlaps its predecessor if the pixels do not divide evenly. If each input pixel
# of a transposed convolution has output pixels of its own, these are the outputs of a
# pointwise convolution.

_COPY, _COPY_ROW, _COPY_BAND = 2.2, 10.0, 2.5
"""Approximate cycles to pack an element and start a row; to copy one to a band."""
_BAND_MAX = 4.25
"""The largest band, relative to a window."""
SOFT_CONFIG = FpuConfig(SOFT_TILE.lanes, SOFT_TILE.pixels, packed=True)
_POINT = ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))


def copy_row(
    b: Kernel, y: tir.Buffer, to: ArithExpr, x: tir.Buffer, start: ArithExpr, count: int
) -> None:
    target = b.pointer(y, to, count, "w")
    b.evaluate("copy_f32", [target, b.pointer(x, start, count), count])


def _zero(
    b: Kernel, y: tir.Buffer, to: ArithExpr | int, zero: ArithExpr | int, count: int
) -> None:
    zeros = b.view("zeros", y, to, (count,), access="w")
    with b.unrolled("i", count, 8, 4, 3, 2) as i:
        b.store(zeros, [i], 0.0)


_MOVES = RowMoves(copy_row, _zero)


class _CopyPacker(RowIm2colPacker):
    """Packs windows into `columns` [pixel, element] by multiple loads and stores."""

    def move(
        self, offset: ArithExpr, first: ArithExpr, pixel: ArithExpr, count: int
    ) -> None:
        to = pixel * self.columns.shape[1] + first
        copy_row(self.b, self.columns, to, self.x, offset, count)

    def zero(self, first: ArithExpr, pixel: ArithExpr, count: int) -> None:
        to = pixel * self.columns.shape[1] + first
        _zero(self.b, self.columns, to, 0, count)


def _window(op: OpCall) -> ConvWindow:
    return _POINT if op.op == "transpose_conv" else kernel_window(op)


def _is_pointwise(op: OpCall) -> bool:
    """Whether each input pixel of a transposed convolution has outputs of its own."""
    attrs = op.attributes(TransposeConvAttrs)
    _, height, width, _ = op.input(0).shape
    _, rows, columns, _ = op.input(1).shape
    fits = op.output.shape[1:3] == (height, width * columns) and attrs.before == (0, 0)
    return fits and rows == 1 and attrs.stride == (1, columns)


def _configs(style: MultiplyAddStyle, goal: str, op: OpCall) -> Sequence[FpuConfig]:
    """Return the cheapest configuration, or that of one pixel for the goal `ram`.

    With the goal, there is none if it is the cheapest anyway.
    """
    if style is None:
        fits = op.op != "depthwise_conv2d" or op.input(0).shape[3] == 1
        return (SOFT_CONFIG,) if fits and op.input(0).dtype == FLOAT32 else ()
    return _choices(op)[1:] if goal else _choices(op)[:1]


def _choices(op: OpCall) -> Sequence[FpuConfig]:
    is_transposed = op.op == "transpose_conv"
    if op.input(0).dtype != FLOAT32 or (is_transposed and not _is_pointwise(op)):
        return ()
    window, w = _window(op), op.input(1)
    depth = w.shape[3] if is_transposed else w.elements // w.shape[0]
    outputs = w.elements // depth
    pixels = op.output.elements // outputs
    rows, _ = window.size
    if window.pointwise:
        return tile_configs(outputs, pixels, depth, 0, pixels)
    row, band = op.output.shape[2], 0
    if window.guarded(0) or window.guarded(1):
        band = rows * sum(band_width(window, row)) * op.input(0).shape[3]
    is_long = rows == 1 or depth // rows > STEPS_PER_ITERATION
    fits = is_long and window.dilation[1] == 1 and band <= _BAND_MAX * depth
    packing = _COPY * depth + _COPY_ROW * (rows + 1)
    band_cost = _COPY_BAND * band / row
    in_place = row if fits else 0
    return tile_configs(outputs, pixels, depth, packing, in_place, rows, band_cost)


def _build(style: MultiplyAddStyle, op: OpCall, config: FpuConfig, b: Kernel) -> None:
    window = _window(op)
    gemm = _plan_gemm(op, b, style, config)
    x = b.input(0)
    block, outputs = gemm.pixels, len(gemm.order.rows)
    depth = gemm.weights.elements // outputs
    is_scattered = op.op == "transpose_conv" and style is None
    if window.pointwise or config.packed:
        with pixel_blocks(b, op.output.elements // outputs, block) as at:
            if window.pointwise and not is_scattered:
                gemm.emit(b, Windows(x, at * depth, depth), at)
                return
            columns = b.allocate("columns", FLOAT32, (block, depth))
            if is_scattered:
                _pack_taps(op, b, columns, at)
            else:
                _CopyPacker(b, window, x, columns).pack(op, at)
            gemm.emit(b, Windows(columns, 0, depth), at)
        return
    width = b.y.shape[2]
    pitch = window.stride[1] * x.shape[3]
    rows = window_rows(b, window, 0, _MOVES)
    with rows as (source, start, distance, row), pixel_blocks(b, width, block) as at:
        first = start + at * pitch
        windows = Windows(source, first, pitch, window.size[0], distance)
        gemm.emit(b, windows, row * width + at)


def _pack_taps(op: OpCall, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
    """Pack the inputs of a transposed convolution's output, and zeros between them."""
    _, height, width, _ = op.output.shape
    channels = op.input(0).shape[3]
    _zero(b, columns, 0, 0, columns.elements)
    shape = (*op.input(1).shape[1:3], channels)
    places = b.view("places", columns, 0, shape, access="w")
    position = OutputPosition(at // (height * width), at // width % height, at % width)
    taps = transpose_conv.taps(op, b, position)
    with taps as (ky, kx, iy, ix), b.unrolled("c", channels, 8, 4, 3, 2) as c:
        b.store(places, [ky, kx, c], b.load(b.input(0), [position.n, iy, ix, c]))


def _schedules() -> Iterator[Schedule[FpuConfig]]:
    for style, requires in ALL_STYLES:
        goals = [("conv2d", ""), ("fully_connected", ""), ("transpose_conv", "")]
        goals.append(("depthwise_conv2d", "") if style is None else ("conv2d", "ram"))
        for op, goal in goals:
            yield Schedule(
                schedule_name(style, op) + (".pixel" if goal else ""),
                op,
                requires,
                partial(_configs, style, goal),
                partial(_build, style),
                disable_scheduling=True,
                goal=goal,
            )


SCHEDULES = tuple(_schedules())
