"""depthwise_conv2d of packed RISC-V: one channel at a time, on its padded copy."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa.rv32_packed import pkbt16, smaqa
from firmwright.ops.conv2d import channel_multiplier_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.depthwise import (
    channel_loop,
    find_computed_channels,
    load_window,
)
from firmwright.schedules.epilogue import by_arithmetic
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.scalar.layer_plan import plan_integer_layer

# A window row of at most four taps is in one word, so an instruction multiplies it.
# With a horizontal stride of 1, a word of a row has the windows of two outputs, for
# which the taps are stored twice, and the word from its third byte on those of two
# more:
#
#     bytes          0  1  2  3 | 4  5  6  7
#     output 0      w0 w1 w2  0 |
#     output 1       0 w0 w1 w2 |
#     output 2            w0 w1 | w2  0
#     output 3             0 w0 | w1 w2
#
# With a stride of 2 there are outputs 0 and 2 only. Words have to be aligned and the
# elements of a channel adjacent, hence the copy of a channel: its margins hold the zero
# point and are written once, so that every window is inside.

_WORD = 4
_HALF = 2
"""The distance in bytes of the two words that an aligned one and the next contain."""
_UNROLL = (8, 6, 5, 4, 3, 2)


@dataclass(frozen=True, slots=True)
class _Plane:
    """The copy of a channel: `rows` of `words` words.

    It has `inside` (rows, columns) of the input, behind the margins `before`.
    """

    rows: int
    words: int
    before: tuple[int, int]
    inside: tuple[int, int]

    @property
    def pitch(self) -> int:
        return self.words * _WORD


def _plane(op: OpCall, window: ConvWindow) -> _Plane:
    rows, columns = (_reach(op, window, axis) for axis in (0, 1))
    words = divide_up(op.output.shape[2] * window.stride[1], _WORD) + 1
    before = window.padding[0], window.padding[2]
    height, width = window.input_size
    inside = min(height, rows - before[0]), min(width, columns - before[1])
    return _Plane(rows, words, before, inside)


def _reach(op: OpCall, window: ConvWindow, axis: int) -> int:
    """Return the positions from the first window to the end of the last one."""
    windows = (op.output.shape[1 + axis] - 1) * window.stride[axis]
    return windows + (window.size[axis] - 1) * window.dilation[axis] + 1


def _window(op: OpCall) -> ConvWindow:
    return window_of(op, op.input(1).shape[1:3])


def _starts(window: ConvWindow) -> Sequence[int]:
    """Return the places in a word at which windows begin."""
    return range(0, _HALF, window.stride[1])


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not op.input(0).dtype == op.input(1).dtype == INT8:
        return ()
    window = _window(op)
    is_dense = window.dilation[1] == 1 and window.stride[1] in (1, 2)
    fits = is_dense and window.size[1] + _starts(window)[-1] <= _WORD
    return (NO_CONFIG,) if fits and min(_plane(op, window).inside) > 0 else ()


def _pack(weights: Array, window: ConvWindow) -> Array:
    """Return the words of [channel, tap]: of each window row, one for each start."""
    height, width = window.size
    rows = weights.astype(np.int8).reshape(-1, height, width)
    words = []
    for start in _starts(window):
        margins = (start, _WORD - width - start)
        words.append(np.pad(rows, ((0, 0), (0, 0), margins)))
    packed = np.ascontiguousarray(np.stack(words, axis=2))
    return packed.view(np.uint32).reshape(len(weights), -1)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    window = _window(op)
    plane = _plane(op, window)
    found = find_computed_channels(b, op)
    found.constants.emit_stores(b, 0, b.y.elements // b.y.shape[3])
    layer = plan_integer_layer(b, op, found)
    packed = b.constant("weights", _pack(found.weights, window), UINT32)
    copy = b.allocate("plane", INT8, (plane.rows, plane.pitch))
    _fill(b, copy, per_tensor_quant(op.input(0)).zero_point)
    size = window.size[0], len(_starts(window))
    with channel_loop(b, found.order) as (index, c):
        finish = layer.bind_group(b)(index, 0)
        weights = load_window(b, packed, index, size, UINT32)
        start = b.let("start", layer.start(b, index))
        with b.for_("n", b.y.shape[0]) as n:
            _copy_channel(b, op, plane, copy, n, c)
            for form in by_arithmetic(b, finish, is_tile=False):
                channel = _Channel(window, plane, copy, weights, start, form)
                _emit_rows(b, channel, n, c)


def _fill(b: Kernel, copy: tir.Buffer, zero_point: int) -> None:
    """Fill a plane with the zero point, by words."""
    count = copy.elements // _WORD
    words = b.view("words", copy, 0, (count,), dtype=UINT32, access="w", alignment=4)
    with b.for_("i", count) as i:
        b.store(words, [i], (zero_point & 0xFF) * 0x01010101)


def _copy_channel(
    b: Kernel,
    op: OpCall,
    plane: _Plane,
    copy: tir.Buffer,
    n: ArithExpr,
    channel: ArithExpr,
) -> None:
    _, height, width, channels = op.input(0).shape
    rows, columns = plane.inside
    multiplier = channel_multiplier_of(op)
    with b.for_("iy", rows) as iy:
        first = (n * height + iy) * (width * channels) + channel // multiplier
        shape = (columns,)
        x = b.view("in", b.input(0), first, shape, strides=(channels,))
        place = (iy + plane.before[0]) * plane.pitch + plane.before[1]
        row = b.view("to", copy, place, shape, access="w")
        with b.unrolled("ix", columns, *_UNROLL) as ix:
            b.store(row, [ix], b.load(x, [ix]))


@dataclass(frozen=True, slots=True)
class _Channel:
    """The plane of a channel, its weights by row and start, and how sums end."""

    window: ConvWindow
    plane: _Plane
    copy: tir.Buffer
    weights: Sequence[Sequence[ArithExpr]]
    start: ArithExpr
    finish: FinishElement


def _emit_rows(
    b: Kernel, channel: _Channel, n: ArithExpr, channel_index: ArithExpr
) -> None:
    window, plane = channel.window, channel.plane
    _, height, width, channels = b.y.shape
    whole, rest = divmod(width, _WORD // window.stride[1])
    with b.for_("oy", height) as oy:
        words = b.view(
            "words",
            channel.copy,
            oy * (window.stride[0] * plane.pitch),
            (window.size[0], plane.words),
            dtype=UINT32,
            strides=(window.dilation[0] * plane.words, 1),
            alignment=4,
        )
        first = (n * height + oy) * (width * channels) + channel_index
        y = b.view("out", b.y, first, (width,), strides=(channels,), access="w")
        if whole:
            with b.for_("word", whole) as word:
                _emit_strip(b, channel, words, y, word, _WORD // window.stride[1])
        if rest:
            _emit_strip(b, channel, words, y, oy * 0 + whole, rest)


def _emit_strip(
    b: Kernel,
    channel: _Channel,
    words: tir.Buffer,
    y: tir.Buffer,
    word: ArithExpr,
    count: int,
) -> None:
    """Compute the first `count` outputs whose windows begin in a word."""
    stride = channel.window.stride[1]
    totals = [channel.start] * count
    for ky, weights in enumerate(channel.weights):
        sources = [b.let("x", b.load(words, [ky, word]))]
        if (count - 1) * stride >= _HALF:
            following = b.load(words, [ky, word + 1])
            across = call_intrinsic("pkbt16", [following, sources[0]], UINT32)
            sources.append(b.let("across", across))
        for output, total in enumerate(totals):
            half, place = divmod(output * stride, _HALF)
            operands = [total, weights[place], sources[half]]
            product = call_intrinsic("smaqa", operands, INT32)
            totals[output] = b.let("total", product)
    for output, total in enumerate(totals):
        at = word * (_WORD // stride) + output
        b.store(y, [at], channel.finish(total))


INTRINSICS = (
    instruction_intrinsic(pkbt16, "rvp"),
    instruction_intrinsic(smaqa, "rvp"),
)
SCHEDULES = (
    Schedule(
        "rvp.depthwise.planes",
        "depthwise_conv2d",
        frozenset({"rvp"}),
        _configs,
        _build,
    ),
)
