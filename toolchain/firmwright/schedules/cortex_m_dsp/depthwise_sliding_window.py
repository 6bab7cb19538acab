"""depthwise_conv2d on the DSP extension: a window that slides over rows or columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.kernels.dsp.depthwise_weights import LinePairs
from firmwright.ops.conv2d import channel_multiplier_of
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.depthwise import (
    OutputRow,
    channel_loop,
    find_computed_channels,
    output_rows,
)
from firmwright.schedules.epilogue import (
    AddendSource,
    make_epilogue,
)
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.schedule_factories import dsp_schedule
from firmwright.schedules.sliding_window import InputLine, SlidingWindow
from firmwright.schedules.window_bounds import ValidTapRun, WindowAxis, window_axes

# One channel at a time, directly on NHWC data. The window slides along one axis: each
# input line it meets (one element per tap across) is loaded once, paired by PKHBT, and
# multiplied into every output that uses it. Two or three accumulators rotate through
# the outputs:
#
#     input lines:    0   1   2   3   4            3 taps, stride 1
#     output 0:       w0  w1  w2                   sum0
#     output 1:           w0  w1  w2               sum1
#     output 2:               w0  w1  w2           sum2, then sum0 again
#
# Border code omits taps outside the input, and the zero point is folded into the bias
# for the taps that remain. If the range proof holds, the left shift of requantization
# is folded into the weights.

_MAX_ACCUMULATORS = 3
_MAX_ACROSS = 4
MAX_LINE = 16
"""Maximum taps across in a window of one line: their pairs take eight registers."""
_SPLITS: Mapping[int, Sequence[Callable[[ArithExpr], ArithExpr]]] = {
    1: (
        lambda word: call_intrinsic("sxtb16", [word], UINT32),
        lambda word: call_intrinsic("sxtb16_ror8", [word], UINT32),
    ),
    256: (lambda word: (word << 8) & 0xFF00FF00, lambda word: word & 0xFF00FF00),
}
"""Weight factor -> how the int16 pairs of a word's even and odd bytes are separated."""


@dataclass(frozen=True, slots=True)
class _SlidingLayer:
    along: WindowAxis
    across: WindowAxis
    zero_point: int
    x: tir.Buffer
    y: tir.Buffer


@dataclass(frozen=True, slots=True)
class ChannelRegisters:
    """The variables of a channel: bias, weights of lines of `across` taps, and end."""

    bias: ArithExpr
    words: Sequence[ArithExpr]
    across: int
    finish: FinishElement

    def pair(self, line: int, pair: int) -> ArithExpr:
        """Return the word that holds taps 2 * pair and 2 * pair + 1 of `line`."""
        return self.words[line * (self.across // 2) + pair]

    def single(self, line: int, tap: int) -> tuple[str, ArithExpr]:
        """Return the instruction that selects a tap's half word, and the word."""
        if tap == self.across - 1 and self.across % 2:
            lines = len(self.words) * 2 // self.across  # ignores a half word at the end
            word = self.words[lines * (self.across // 2) + line // 2]
            half = line % 2
        else:
            word = self.pair(line, tap // 2)
            half = tap % 2
        return ("smlabt" if half else "smlabb"), word


@dataclass(frozen=True, slots=True)
class SlideConfig(ScheduleConfig):
    """The configuration of a sliding window: the axis along which it slides."""

    along: Literal["x", "y"]


def _configs(op: OpCall) -> Sequence[SlideConfig]:
    if not has_sliding_products(op):
        return ()
    vertical, horizontal = window_axes(op)
    configs: list[SlideConfig] = []
    if _can_slide(horizontal, vertical):
        configs.append(SlideConfig("x"))
    if _can_slide(vertical, horizontal):
        configs.append(SlideConfig("y"))
    return tuple(configs)


def has_sliding_products(op: OpCall) -> bool:
    """Whether products are those of int16 pairs in 32 bits, without dilation."""
    kind = op.input(0).dtype
    is_int16 = kind == INT16 and accumulator_dtype(op, 3) == INT32
    if not (is_int16 or kind == INT8) or op.attributes(WindowAttrs).dilation != (1, 1):
        return False
    return all(axis.has_taps for axis in window_axes(op))


def _can_slide(along: WindowAxis, across: WindowAxis) -> bool:
    max_across = _MAX_ACROSS if along.taps > 1 else MAX_LINE
    accumulators = SlidingWindow(along).accumulators
    return accumulators <= _MAX_ACCUMULATORS and across.taps <= max_across


def _build(op: OpCall, config: SlideConfig, b: Kernel) -> None:
    vertical, horizontal = window_axes(op)
    is_vertical = config.along == "y"
    along, across = (vertical, horizontal) if is_vertical else (horizontal, vertical)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    layer = _SlidingLayer(along, across, zero_point, b.input(0), b.y)
    label = partial(_run_label, layer)
    with channel_registers(b, op, is_vertical=is_vertical) as (channel, places):
        for row in output_rows(b, across.runs(), channel.finish, label):
            registers = replace(channel, finish=row.finish)
            _row(b, layer, registers, row, places)


@contextmanager
def channel_registers(
    b: Kernel, op: OpCall, *, is_vertical: bool
) -> Iterator[tuple[ChannelRegisters, tuple[ArithExpr, ArithExpr]]]:
    """Loop over channels; yield their registers, and that of the input and the output.

    Lines of weights are across the vertical or the horizontal axis. Outputs of constant
    channels are stored before.
    """
    vertical, horizontal = window_axes(op)
    along, across = (vertical, horizontal) if is_vertical else (horizontal, vertical)
    found = find_computed_channels(b, op, may_skip_few=True)
    flat = found.weights
    epilogue = make_epilogue(
        b,
        found.params,
        found.bounds,
        op.input(0).dtype,
        len(flat),
        bake=flat,
        addends=AddendSource.COMPUTED,
    )
    factors = np.array(epilogue.factors, np.int64)
    taps = flat
    if not is_vertical:
        by_row = flat.reshape(-1, vertical.taps, horizontal.taps)
        taps = by_row.transpose(0, 2, 1).reshape(flat.shape)
    weights = _plan_weights(b, (along, across), taps, factors)
    bias_table = b.constant("bias", found.bias * factors, INT32)
    multiplier = channel_multiplier_of(op)
    batch, height, width, _ = b.y.shape
    with b.for_("n", batch) as n:
        found.constants.emit_stores(b, n * (height * width), height * width)
    with channel_loop(b, found.order) as (index, target):
        finish = epilogue.bind_channel(b, index)
        start = b.let("channel_bias", b.load(bias_table, [index]))
        words = weights.bind(b, index)
        registers = ChannelRegisters(start, words, across.taps, finish)
        yield registers, (target // multiplier, target)


@dataclass(frozen=True, slots=True)
class _WindowWeights:
    """Packed weights: words of int16, or bytes of two words that `split` separates."""

    table: tir.Buffer
    layout: LinePairs
    split: Sequence[Callable[[ArithExpr], ArithExpr]]

    def bind(self, b: Kernel, index: ArithExpr) -> list[ArithExpr]:
        """Load the words of two halves of channel `index` into variables."""
        loads = self._load(b, index)
        if self.split:
            whole_words = [b.let(f"bytes{i}", load) for i, load in enumerate(loads)]
            loads = [split(word) for word in whole_words for split in self.split]
        return [
            b.let(f"w{i}", word) for i, word in enumerate(loads[: self.layout.words])
        ]

    def _load(self, b: Kernel, index: ArithExpr) -> list[ArithExpr]:
        table, count = self.table, self.table.shape[1]
        if table.dtype == UINT32:
            return [b.load(table, [index, i]) for i in range(count)]
        shape = (count // 4,)
        whole = b.view("taps", table, index * count, shape, dtype=UINT32, alignment=1)
        loads = [b.load(whole, [i]) for i in range(count // 4)]
        alone = [b.load_i32(table, [index, i]) for i in range(count // 4 * 4, count)]
        if len(alone) == 1:
            return [*loads, alone[0].cast(UINT32)]
        return [*loads, call_intrinsic("pkhbt", alone, UINT32)]


def _plan_weights(
    b: Kernel, axes: tuple[WindowAxis, WindowAxis], taps: Array, factors: Array
) -> _WindowWeights:
    """Plan weights [channel, tap] of the axes (along, across).

    int8 weights with a factor of 1 or 256 remain bytes.
    """
    along, across = axes
    octets = LinePairs(along.taps, across.taps, INT8)
    factor = int(factors[0])
    is_common = factor in _SPLITS and (factors == factor).all()
    if not is_common or not octets.do_weights_fit(taps):
        halves = LinePairs(along.taps, across.taps)
        words = halves.pack(taps * factors[:, None]).view(np.uint32)
        return _WindowWeights(b.constant("weights", words, UINT32), halves, ())
    packed = octets.pack(taps)
    if octets.taps_alone:
        table = b.constant("weights", packed, INT8)
    else:
        table = b.constant("weights", packed.view(np.uint32), UINT32)
    return _WindowWeights(table, octets, _SPLITS[factor])


def _row(
    b: Kernel,
    layer: _SlidingLayer,
    channel: ChannelRegisters,
    row: OutputRow,
    channels: tuple[ArithExpr, ArithExpr],
) -> None:
    """Compute a row; `channels` are that of the input and that of the output."""
    source, target = channels
    along, across = layer.along, layer.across
    x_batch = layer.x.elements // layer.x.shape[0]
    y_batch = layer.y.elements // layer.y.shape[0]
    missing = across.missing(row.taps)
    label = _label(layer, missing)
    first = row.position * across.stride - across.before + row.taps.start
    x_start = row.n * x_batch + first * across.input_step + source
    y_start = row.n * y_batch + row.position * across.output_step + target
    if missing and layer.zero_point:
        # The bias includes the zero-point share of omitted taps.
        omitted = list(product(range(along.taps), missing))
        point = layer.zero_point
        corrected = with_zero_points(point, channel, channel.bias, omitted)
        channel = replace(channel, bias=b.let(f"{label}_bias", corrected))
    _SlideEmitter(b, layer, channel, row.taps, (x_start, y_start), label).emit()


def _run_label(layer: _SlidingLayer, run: ValidTapRun) -> str:
    return f"{_label(layer, layer.across.missing(run.taps))}_position"


def _label(layer: _SlidingLayer, missing: Sequence[int]) -> str:
    if not missing:
        return "inner"
    is_vertical = layer.across.input_step > layer.along.input_step
    first, last = ("top", "bottom") if is_vertical else ("left", "right")
    return first if missing[0] == 0 else last


@dataclass
class _SlideEmitter:
    """Emits a position across the axis; accumulators rotate through the outputs."""

    b: Kernel
    layer: _SlidingLayer
    channel: ChannelRegisters
    valid: range
    start: tuple[ArithExpr, ArithExpr]
    label: str

    def __post_init__(self) -> None:
        self.slide = SlidingWindow(self.layer.along)
        names = [f"{self.label}_sum{i}" for i in range(self.slide.accumulators)]
        self.acc = [self.b.reg(name, INT32) for name in names]

    def emit(self) -> None:
        before, iteration, iterations, after = self.slide.parts
        x, y = self.start
        self._lines(before, x, y, self.label)
        if iterations:
            along = self.layer.along
            steps = len(iteration)
            outputs = steps // along.stride
            with self.b.for_("trip", iterations) as i:
                x_trip = x + i * (steps * along.input_step)
                y_trip = y + i * (outputs * along.output_step)
                self._lines(iteration, x_trip, y_trip, f"{self.label}_loop")
        self._lines(after, x, y, f"{self.label}_end")

    def _lines(
        self,
        lines: Sequence[InputLine],
        x_start: ArithExpr,
        y_start: ArithExpr,
        label: str,
    ) -> None:
        if not lines:
            return
        along = self.layer.along
        across = self.layer.across
        b = self.b
        first, last = lines[0].index, lines[-1].index
        window = b.view(
            f"{label}_lines",
            self.layer.x,
            x_start + first * along.input_step,
            (last - first + 1, len(self.valid)),
            strides=(along.input_step, across.input_step),
        )
        ended = [output for line in lines for output in line.ends]
        y = None
        if ended:
            y = b.view(
                f"{label}_out",
                self.layer.y,
                y_start + ended[0] * along.output_step,
                (len(ended),),
                strides=(along.output_step,),
                access="w",
            )
        for line in lines:
            self._line(window, line, line.index - first, label)
            for output in line.ends:
                assert y is not None
                total = b.load(self._slot(output), [0])
                b.store(y, [output - ended[0]], self.channel.finish(total))

    def _slot(self, output: int) -> tir.Buffer:
        return self.acc[output % len(self.acc)]

    def _line(self, window: tir.Buffer, line: InputLine, row: int, label: str) -> None:
        """Load the line once and multiply it into every output that uses it."""
        b = self.b
        if not line.uses:
            return  # skipped by a stride larger than the kernel
        for output in line.starts:
            b.store(self._slot(output), [0], self._bias(output))
        operands = self._operands(window, row, f"{label}_line{row}")
        for output, tap in line.uses:
            acc = b.load(self._slot(output), [0])
            for value, first, is_pair in operands:
                if is_pair:
                    name = "smlad"
                    word = self.channel.pair(tap, first // 2)
                else:
                    name, word = self.channel.single(tap, first)
                acc = call_intrinsic(name, [value, word, acc], INT32)
            b.store(self._slot(output), [0], acc)

    def _operands(
        self, window: tir.Buffer, row: int, label: str
    ) -> list[tuple[ArithExpr, int, bool]]:
        """Return the operands of one line as (value, first tap across, is pair)."""
        b, operands = self.b, []
        values: dict[int, ArithExpr] = {}
        for tap in self.valid:
            value = b.load_i32(window, [row, tap - self.valid.start])
            values[tap] = b.let(f"{label}_x{tap}", value)
        for tap in range(0, self.layer.across.taps, 2):
            low = values.get(tap)
            high = values.get(tap + 1)
            if low is not None and high is not None:
                packed = call_intrinsic("pkhbt", [low, high], UINT32)
                pair = b.let(f"{label}_pair", packed)
                operands.append((pair, tap, True))
            elif low is not None:
                operands.append((low.cast(UINT32), tap, False))
            elif high is not None:
                operands.append((high.cast(UINT32), tap + 1, False))
        return operands

    def _bias(self, output: int) -> ArithExpr:
        """Return an output's bias, less zero-point terms of lines outside the input."""
        valid = self.layer.along.valid(output)
        if len(valid) == self.layer.along.taps or not self.layer.zero_point:
            return self.channel.bias
        taps = list(product(self.layer.along.missing(valid), self.valid))
        point = self.layer.zero_point
        return with_zero_points(point, self.channel, self.channel.bias, taps)


def with_zero_points(
    zero_point: int,
    channel: ChannelRegisters,
    bias: ArithExpr,
    taps: Sequence[tuple[int, int]],
) -> ArithExpr:
    """Return `bias` plus zero point times weight for omitted `taps` (along, across)."""
    if not zero_point:
        return bias
    value = ArithExpr(immediate(zero_point & 0xFFFF, UINT32))
    for line, tap in taps:
        name, word = channel.single(line, tap)
        bias = call_intrinsic(name, [value, word, bias], INT32)
    return bias


SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.sliding_window",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
