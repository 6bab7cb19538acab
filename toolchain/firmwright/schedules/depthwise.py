"""Loops around the tiles of depthwise kernels, and the tables of channels in lanes.

The innermost code of a family computes a tile: some adjacent outputs of a row times
some channels. There are two orders of loops, for tiles that keep the weights of
one channel in registers, and for those with adjacent channels in lanes:

    channel by channel             strip by strip
    for each computed channel      for each run of rows with equal valid taps
        load its weights               for each row
        for each run of rows               for each strip of adjacent outputs
            for each row                       for each block of channels
                compute its outputs                compute a tile
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from firmwright.base.dtypes import DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.ops.conv2d import requantization_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Position
from firmwright.schedules.computed_channels import (
    ComputedChannels,
    computed_channels,
    integer_layer,
)
from firmwright.schedules.epilogue import by_arithmetic
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.folded_requantize import fold_requantize
from firmwright.schedules.skip_constant_channels import ChannelOrder
from firmwright.schedules.window_bounds import ValidTapRun, window_axes

# ---- channel by channel --------------------------------------------------------------


def find_computed_channels(
    b: Kernel, op: OpCall, *, may_skip_few: bool = False
) -> ComputedChannels:
    """Find the channels of a layer that are not constant.

    Constant channels are computed, too, if they are few, unless a kernel may skip few.
    It does so only if requantization then needs no case of its own for the others.
    """
    layer = integer_layer(op)
    params = requantization_of(op)
    is_simple = not may_skip_few or fold_requantize(params, *layer.bounds) is not None
    return computed_channels(b, layer, only_if_many=is_simple)


@contextmanager
def channel_loop(
    b: Kernel, order: ChannelOrder
) -> Iterator[tuple[ArithExpr, ArithExpr]]:
    """Loop over table rows; yield a row and its channel."""
    with b.for_("c", len(order.rows)) as row:
        channel = order.channel(b, row)
        yield row, row if order.table is None else b.let("channel", channel)


@dataclass(frozen=True, slots=True)
class OutputRow:
    """An output row of a channel: the valid tap rows, and how sums become outputs."""

    n: ArithExpr
    position: ArithExpr
    taps: range
    finish: FinishElement


def output_rows(
    b: Kernel,
    runs: Sequence[ValidTapRun],
    finish: FinishElement,
    label: Callable[[ValidTapRun], str] = lambda _: "oy",
) -> Iterator[OutputRow]:
    """Loop over the output rows, or columns, of a channel, by valid taps."""
    with b.for_("n", b.y.shape[0]) as n:
        for form in by_arithmetic(b, finish, is_tile=False):
            for run in runs:
                loop = b.for_(label(run), len(run.outputs), run.outputs.start)
                with loop as position:
                    yield OutputRow(n, position, run.taps, form)


def channel_views(
    b: Kernel, op: OpCall, row: OutputRow, channel: ArithExpr
) -> tuple[tir.Buffer, tir.Buffer]:
    """Return views of one channel of the input rows [tap, x] and of the output row."""
    vertical, horizontal = window_axes(op)
    top = row.position * vertical.stride - vertical.before
    top = top + row.taps.start * vertical.dilation
    source = (row.n * b.input(0).shape[1] + top) * vertical.input_step
    target = (row.n * b.y.shape[1] + row.position) * vertical.output_step
    multiplier = horizontal.output_step // horizontal.input_step
    x = b.view(
        "in",
        b.input(0),
        source + channel // multiplier,
        (len(row.taps), horizontal.inputs),
        strides=(vertical.dilation * vertical.input_step, horizontal.input_step),
    )
    y = b.view(
        "out",
        b.y,
        target + channel,
        (len(horizontal.outputs),),
        strides=(horizontal.output_step,),
        access="w",
    )
    return x, y


def line_blocks(
    b: Kernel, run: ValidTapRun, outputs: int
) -> Iterator[tuple[ArithExpr, int]]:
    """Loop over blocks of a run; yield the first output and the number of outputs."""
    count = min(outputs, len(run.outputs))
    whole, rest = divmod(len(run.outputs), count)
    with b.for_("block", whole) as block:
        yield block * count + run.outputs.start, count
    if rest:
        yield ArithExpr(immediate(run.outputs.stop - rest, INDEX)), rest


def load_window(
    b: Kernel, weights: tir.Buffer, row: ArithExpr, size: tuple[int, int], dtype: DType
) -> list[list[ArithExpr]]:
    """Load the weights [y][x] of a table row into variables."""
    height, width = size
    taps: list[list[ArithExpr]] = []
    for ky in range(height):
        line: list[ArithExpr] = []
        for kx in range(width):
            value = b.load(weights, [row, ky * width + kx]).cast(dtype)
            line.append(b.let(f"w{ky}{kx}", value))
        taps.append(line)
    return taps


# ---- strip by strip ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutputStrips:
    """`times` strips of `outputs` adjacent outputs of a row, from output `first` on.

    A strip reads input columns `skipped` to `skipped + reach`, counted from the first
    column of its first window.
    """

    first: int
    outputs: int
    times: int
    skipped: int
    reach: int


def strips_of(window: ConvWindow, run: ValidTapRun, outputs: int) -> list[OutputStrips]:
    """Cut a run into strips of `outputs` outputs and a shorter one at its end."""
    stride, dilation = window.stride[1], window.dilation[1]
    whole, rest = divmod(len(run.outputs), outputs)
    strips: list[OutputStrips] = []
    for count, times, first in (
        (outputs, whole, run.outputs.start),
        (rest, 1, run.outputs.stop - rest),
    ):
        reach = (count - 1) * stride + (len(run.taps) - 1) * dilation
        if count and times:
            skipped = run.taps.start * dilation
            strips.append(OutputStrips(first, count, times, skipped, reach))
    return strips


@dataclass(frozen=True, slots=True)
class StripTile:
    """A strip of outputs from the pixel `at`, before channels are chosen."""

    strips: OutputStrips
    at: Position


def strip_tiles(
    b: Kernel, rows: range, strips: Sequence[OutputStrips]
) -> Iterator[StripTile]:
    """Loop over output rows and, in each, over strips."""
    with (
        b.for_("n", b.y.shape[0]) as n,
        b.for_("oy", len(rows), rows.start) as oy,
    ):
        for each in strips:
            with b.for_("ox", each.times) as index:
                yield StripTile(each, (n, oy, index * each.outputs + each.first))


@dataclass(frozen=True, slots=True)
class LaneTile:
    """A strip of outputs of a block of channels.

    `x` is where its first valid tap is read, and `outputs` where each output is stored.
    """

    strips: OutputStrips
    block: ArithExpr
    channel: ArithExpr
    x: tir.AccessPtr
    outputs: tuple[tir.AccessPtr, ...]


def lane_tiles(
    b: Kernel,
    op: OpCall,
    blocks: ChannelBlocks,
    rows: ValidTapRun,
    strips: Sequence[OutputStrips],
) -> Iterator[LaneTile]:
    """Loop over strips of a run of rows and, in each, over blocks of channels."""
    window = window_of(op, op.input(1).shape[1:3])
    x = b.input(0)
    _, height, width, channels = x.shape
    _, out_height, out_width, _ = b.y.shape
    row_step = window.dilation[0] * width * channels
    above = rows.taps.start * window.dilation[0] - window.padding[0]
    lanes = blocks.stored
    for tile in strip_tiles(b, rows.outputs, strips):
        n, oy, ox = tile.at
        iy = oy * window.stride[0] + above
        ix = ox * window.stride[1] + (tile.strips.skipped - window.padding[2])
        source = b.let("source", ((n * height + iy) * width + ix) * channels)
        target = b.let("target", ((n * out_height + oy) * out_width + ox) * channels)
        columns = tile.strips.reach * channels
        reach = (len(rows.taps) - 1) * row_step + columns + lanes
        with b.for_("block", blocks.count) as block:
            channel = b.let("channel", blocks.first(block))
            outputs: list[tir.AccessPtr] = []
            for p in range(tile.strips.outputs):
                place = target + channel + p * channels
                outputs.append(b.pointer(b.y, place, lanes, "w"))
            yield LaneTile(
                tile.strips,
                block,
                channel,
                b.pointer(x, source + channel, reach),
                tuple(outputs),
            )
