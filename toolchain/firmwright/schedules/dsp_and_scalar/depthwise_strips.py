"""Depthwise convolution in strips of a few outputs of a row times a few channels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, logical_and
from firmwright.kernels.contract import InterleavedChannels
from firmwright.kernels.depthwise_contract import (
    DepthwiseContract,
    OutsideTaps,
    WindowInputs,
)
from firmwright.kernels.dsp.depthwise_weights import ChannelPairs
from firmwright.ops.conv2d import channel_multiplier_of, weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import Schedule
from firmwright.schedules.depthwise import strip_tiles, strips_of
from firmwright.schedules.int16_accumulation import (
    Int16Accumulation,
    plan_int16_accumulation,
)
from firmwright.schedules.row_band import PixelBlock
from firmwright.schedules.schedule_factories import dsp_schedule
from firmwright.schedules.window_bounds import ValidTapRun, split_by_valid_taps

# A tap's weights serve every output of the strip; an input value serves every output
# that uses it. Outputs of a row are grouped by the tap columns that fall inside the
# input; tap rows are checked at run time.
#
# On the DSP extension, two adjacent channels of int16 share a word, and SMLABB and
# SMLATT multiply one tap of both; with several filters per channel, two filters share
# the input value. The last channel of an odd number is computed alone. Other cores
# compute one channel at a time and subtract the zero point when int8 values are loaded;
# this serves int16 and windows with more taps than registers.

_PIXELS = (3, 1)
_MAX_UNROLLED = 8
"""Maximum window width, since its taps are unrolled."""
_MAX_GROUPS = 7
_MAX_BODIES = 4
"""Maximum number of loops by valid window rows and columns; above it, by columns."""
_PAIR = 2
_FEW_TAPS = 12
_FEW_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class _DepthwiseTaps:
    """Weights [row, column, block] of blocks of `lanes` channels.

    There are `filters` for each input channel.
    """

    contract: DepthwiseContract
    taps: tir.Buffer
    x: tir.Buffer
    filters: int
    zero_point: int = 0

    @property
    def lanes(self) -> int:
        return self.contract.channels

    def weights(self, b: Kernel, at: Sequence[ArithExpr | int]) -> ArithExpr:
        if self.lanes == _PAIR:
            return b.load(self.taps, at)
        return b.load_i32(self.taps, at)

    def value(self, b: Kernel, at: Sequence[ArithExpr], lanes: int) -> ArithExpr:
        """Return the input value at [n, y, x, c], or a word that begins there."""
        if lanes == _PAIR and self.filters == 1:
            n, y, x, c = at
            _, height, width, channels = self.x.shape
            start = ((n * height + y) * width + x) * channels + c
            size = 4 if channels % _PAIR == 0 else 2
            pair = b.view("pair", self.x, start, (1,), dtype=UINT32, alignment=size)
            return b.load(pair, [0])
        value = b.load_i32(self.x, at)
        return value - self.zero_point if self.zero_point else value

    def product(
        self, total: ArithExpr, x: ArithExpr, w: ArithExpr, lane: int
    ) -> ArithExpr:
        if self.lanes != _PAIR:
            return total + x * w
        odd = "smlatt" if self.filters == 1 else "smlabt"
        name = odd if lane else "smlabb"
        return call_intrinsic(name, [x.cast(UINT32), w, total], INT32)


def _strip_configs(op: OpCall) -> Sequence[PixelBlock]:
    if op.input(1).shape[2] > _MAX_UNROLLED:
        return ()
    groups = _groups(op)
    if len(groups) > _MAX_GROUPS or not all(each.taps for each in groups):
        return ()
    width = max(len(across.outputs) for across in groups)
    return [PixelBlock(count) for count in _PIXELS if count <= width]


def _groups(op: OpCall) -> list[ValidTapRun]:
    window = window_of(op, op.input(1).shape[1:3])
    return split_by_valid_taps(window, 1, op.output.shape[2])


@dataclass(frozen=True, slots=True)
class _Strips:
    window: ConvWindow
    taps: _DepthwiseTaps
    sums: Int16Accumulation
    is_guarded: bool

    def pixels(
        self, b: Kernel, taps: tuple[range, range], at: Position, count: int
    ) -> None:
        """Compute all channels of `count` outputs of a row from `at` (n, oy, ox).

        `taps` are the rows and columns of the window; rows outside the input are
        omitted.
        """
        n, oy, ox = at
        _, height, width, channels = b.y.shape
        start = ((n * height + oy) * width + ox) * channels
        y = b.view("out", b.y, start, (count, channels), access="w")
        groups, size = _block_groups(channels, self.taps.filters)
        whole, rest = divmod(size, self.taps.lanes)
        for lanes, blocks in ((self.taps.lanes, whole), (1, rest)):
            if not blocks:
                continue
            unroll = blocks if groups > 1 and blocks <= _FEW_BLOCKS else 1
            with (
                b.for_("group", groups) as group,
                b.unrolled("block", blocks, unroll) as block,
            ):
                place = block if lanes == self.taps.lanes else block + whole
                first = b.let("first", group * size + place * self.taps.lanes)
                acc = b.reg("acc", INT32, lanes * count)
                for c in range(lanes):
                    bias = b.let("channel_bias", self.sums.start(b, first + c))
                    for pixel in range(count):
                        b.store(acc, [pixel * lanes + c], bias)
                source = first if self.taps.filters == 1 else group
                number = group * (whole + rest) + place
                self._window(b, acc, taps, at, (number, source, lanes))
                for c in range(lanes):
                    finish = self.sums.bind_channel(b, first + c)
                    for pixel in range(count):
                        total = b.load(acc, [pixel * lanes + c])
                        b.store(y, [pixel, first + c], finish(total))

    def _window(
        self,
        b: Kernel,
        acc: tir.Buffer,
        taps: tuple[range, range],
        at: Position,
        block: tuple[ArithExpr, ArithExpr, int],
    ) -> None:
        """Accumulate `taps` of `block`: its number, first input channel and size."""
        window, (rows, columns) = self.window, taps
        n, oy, ox = at
        top = oy * window.stride[0] - window.padding[0]
        first_tap = columns.start * window.dilation[1] - window.padding[2]
        left = ox * window.stride[1] + first_tap
        if not rows:
            return
        is_unrolled = self.taps.lanes == _PAIR and len(rows) <= _MAX_UNROLLED
        unroll = len(rows) if is_unrolled and not self.is_guarded else 1
        with b.unrolled("ky", len(rows), unroll) as index:
            ky = index + rows.start
            iy = b.let("iy", top + ky * window.dilation[0])
            with Nest() as enter:
                if self.is_guarded:
                    enter(b.if_(logical_and(iy >= 0, iy < window.input_size[0])))
                self._row(b, acc, columns, (n, iy, left), (ky, *block))

    def _row(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: range,
        origin: Position,
        at: tuple[ArithExpr, ArithExpr, ArithExpr, int],
    ) -> None:
        """Accumulate one window row; `origin` is the input of its first valid tap."""
        n, iy, left = origin
        ky, block, source, lanes = at
        stride = self.window.stride[1]
        dilation = self.window.dilation[1]
        inputs: dict[int, ArithExpr] = {}
        for tap in columns:
            weights = b.let("w", self.taps.weights(b, [ky, tap, block]))
            for pixel in range(acc.shape[0] // lanes):
                offset = pixel * stride + (tap - columns.start) * dilation
                if offset not in inputs:
                    place = [n, iy, left + offset, source]
                    inputs[offset] = b.let("x", self.taps.value(b, place, lanes))
                for c in range(lanes):
                    total = b.load(acc, [pixel * lanes + c])
                    product = self.taps.product(total, inputs[offset], weights, c)
                    b.store(acc, [pixel * lanes + c], product)


def _block_groups(channels: int, filters: int) -> tuple[int, int]:
    """Return the number of channel groups that blocks do not cross, and their size."""
    return (1, channels) if filters == 1 else (channels // filters, filters)


def _build_strips(
    op: OpCall, b: Kernel, contract: DepthwiseContract, zero_point: int
) -> None:
    kernel = weights_of(op)[0]
    height_of_window, width, channels = kernel.shape
    by_channel = kernel.reshape(-1, channels).T
    packed = contract.layout.pack(by_channel)
    if contract.channels == _PAIR:
        packed = packed.view(np.uint32)
    shaped = packed.reshape(height_of_window, width, -1)
    weights = b.constant(
        "weights", shaped, UINT32 if contract.channels == _PAIR else INT8
    )
    sums = plan_int16_accumulation(b, op, by_channel)
    taps = _DepthwiseTaps(
        contract, weights, b.input(0), channel_multiplier_of(op), zero_point
    )
    window = window_of(op, op.input(1).shape[1:3])
    height = op.output.shape[1]
    rows = split_by_valid_taps(window, 0, height)
    groups = _groups(op)
    most = _MAX_BODIES if taps.lanes == _PAIR else 1
    is_guarded = window.guarded(0) and len(rows) * len(groups) > most
    if is_guarded:
        rows = [ValidTapRun(range(height), range(window.size[0]))]
    strips = _Strips(window, taps, sums, is_guarded)
    for down, across in product(rows, groups):
        count = min(contract.outputs, len(across.outputs))
        for tile in strip_tiles(b, down.outputs, strips_of(window, across, count)):
            valid = (down.taps, across.taps)
            strips.pixels(b, valid, tile.at, tile.strips.outputs)


def _pair_configs(op: OpCall) -> Sequence[PixelBlock]:
    _, size = _block_groups(op.output.shape[3], channel_multiplier_of(op))
    return _strip_configs(op) if op.input(0).dtype == INT16 and size >= _PAIR else ()


def _build_pairs(op: OpCall, config: PixelBlock, b: Kernel) -> None:
    _, size = _block_groups(op.output.shape[3], channel_multiplier_of(op))
    contract = DepthwiseContract(
        channels=_PAIR,
        outputs=config.pixels,
        inputs=WindowInputs.STRIP,
        outside=OutsideTaps.OMITTED,
        layout=ChannelPairs(size),
    )
    _build_strips(op, b, contract, zero_point=0)


def _single_configs(op: OpCall) -> Sequence[PixelBlock]:
    kind = op.input(0).dtype
    _, height, width, _ = op.input(1).shape
    is_large = kind == INT8 and height * width > _FEW_TAPS
    is_large = is_large and channel_multiplier_of(op) == 1
    return _strip_configs(op) if is_large or kind == INT16 else ()


def _build_single(op: OpCall, config: PixelBlock, b: Kernel) -> None:
    contract = DepthwiseContract(
        channels=1,
        outputs=config.pixels,
        inputs=WindowInputs.STRIP,
        outside=OutsideTaps.OMITTED,
        layout=InterleavedChannels(INT8, (op.output.shape[3],)),
    )
    _build_strips(op, b, contract, per_tensor_quant(op.input(0)).zero_point)


_OPERATOR = "depthwise_conv2d"
SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.int16", _OPERATOR, configs=_pair_configs, build=_build_pairs
    ),
    Schedule(
        "scalar.depthwise.strips",
        _OPERATOR,
        frozenset(),
        _single_configs,
        _build_single,
    ),
)
