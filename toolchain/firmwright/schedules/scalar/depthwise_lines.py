"""One-dimensional depthwise layers on RV32: blocks of outputs of a line.

A block loads each input once for all its outputs. A convolution of one input channel is
a depthwise layer, too, of which all channels have the same input, and so is a pointwise
convolution of a few input channels: a line of all bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.contract import InterleavedChannels
from firmwright.ops.conv2d import channel_weights
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule
from firmwright.schedules.depthwise import (
    channel_loop,
    find_computed_channels,
    line_blocks,
    load_window,
)
from firmwright.schedules.epilogue import by_arithmetic
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.row_band import PixelBlock
from firmwright.schedules.scalar.layer_plan import plan_integer_layer
from firmwright.schedules.window_bounds import (
    ValidTapRun,
    WindowAxis,
    line_axes,
)

_MANY_SUMS = 5
"""With more outputs that use an input, blocks are short: their sums take registers."""
_LONG, _SHORT = 8, 4
_MOST_TAPS = 12
"""More weights leave no registers for sums."""
_FEW_CHANNELS = 6
"""With more channels, blocks of pixels and channels take fewer loads."""


def _configs(op: OpCall) -> Sequence[PixelBlock]:
    x = op.input(0)
    is_conv2d = op.op == "conv2d"
    if x.dtype != INT8 or (is_conv2d and x.shape[3] > 1 and not _is_pixel(op)):
        return ()
    line, across = _axes(op)
    is_line = across.taps == 1 and not across.before and line.has_taps
    outputs = len(line.outputs)
    if not is_line or not 1 < line.taps <= _MOST_TAPS or outputs == 1:
        return ()
    most = _LONG if divide_up(line.taps, line.stride) <= _MANY_SUMS else _SHORT
    return (PixelBlock(min(most, outputs)),)


def _is_pixel(op: OpCall) -> bool:
    """Return whether windows are whole pixels of a few channels."""
    return kernel_window(op).pointwise and op.input(0).shape[3] <= _FEW_CHANNELS


def _axes(op: OpCall) -> tuple[WindowAxis, WindowAxis]:
    """Return the line, and the axis of lines.

    Whole pixels are one line of bytes, and a window is the bytes of a pixel.
    """
    if op.op != "conv2d" or not _is_pixel(op):
        return line_axes(op)
    channels, outputs = op.input(0).shape[3], op.output.shape[3]
    pixels = op.output.elements // outputs
    size = pixels * channels
    line = WindowAxis(channels, channels, 1, 0, size, range(pixels), 1, outputs)
    return line, WindowAxis(1, 1, 1, 0, 1, range(1), size, pixels * outputs)


@dataclass(frozen=True, slots=True)
class _Channel:
    """The registers of a channel, and where the lines of its input and output begin."""

    line: WindowAxis
    zero_point: int
    weights: Sequence[ArithExpr]
    start: ArithExpr
    source: ArithExpr
    target: ArithExpr

    def start_of(self, b: Kernel, run: ValidTapRun) -> ArithExpr:
        """Return the start of the sums of a run: taps outside are the zero point."""
        missing = self.line.missing(run.taps) if self.zero_point else []
        total = self.start
        for tap in missing:
            total = total + self.weights[tap] * self.zero_point
        return b.let("begin", total) if missing else total


def _build(op: OpCall, config: PixelBlock, b: Kernel) -> None:
    flat, (line, across) = channel_weights(op), _axes(op)
    found = find_computed_channels(b, op)
    found.constants.emit_stores(b, 0, b.y.elements // b.y.shape[3])
    layer = plan_integer_layer(b, op, found, may_bake=True)
    chosen = list(found.order.rows)
    is_wide = layer.factors.max() > 1 or flat.dtype == INT16.np
    layout = InterleavedChannels(INT16 if is_wide else INT8, (1,))
    packed = layout.pack(flat[chosen] * layer.factors[:, None])
    table = b.constant("weights", packed.reshape(len(chosen), -1), layout.element)
    batch, *_, channels = b.input(0).shape
    if op.op == "conv2d":
        batch = 1 if _is_pixel(op) else batch
        channels = 1
    multiplier = b.y.shape[3] // channels
    with channel_loop(b, found.order) as (index, c):
        finish = layer.bind_group(b)(index, 0)
        (weights,) = load_window(b, table, index, (1, line.taps), INT32)
        start = b.let("base", layer.start(b, index))
        source = c // multiplier if channels > 1 else c * 0
        with b.loops("n position", (batch, len(across.outputs))) as (n, position):
            source = source + n * (b.input(0).elements // batch)
            channel = _Channel(
                line,
                layer.zero_point,
                weights,
                start,
                source + position * (across.stride * across.input_step),
                c + n * (b.y.elements // batch) + position * across.output_step,
            )
            for form in by_arithmetic(b, finish, is_tile=False):
                for run in line.runs():
                    _emit_run(b, channel, run, form, config.pixels)


def _emit_run(
    b: Kernel, channel: _Channel, run: ValidTapRun, finish: FinishElement, outputs: int
) -> None:
    """Compute the outputs of a run, `outputs` at once."""
    line, taps = channel.line, run.taps
    begin = channel.start_of(b, run)
    for first, count in line_blocks(b, run, outputs):
        left = first * line.stride - line.before + taps.start * line.dilation
        reach = (count - 1) * line.stride + (len(taps) - 1) * line.dilation
        x = b.view(
            "line",
            b.input(0),
            channel.source + left * line.input_step,
            (reach + 1,),
            strides=(line.input_step,),
        )
        y = b.view(
            "out",
            b.y,
            channel.target + first * line.output_step,
            (count,),
            strides=(line.output_step,),
            access="w",
        )
        sums = [begin] * count
        for place in range(reach + 1):
            uses = _uses(line, taps, count, place)
            if not uses:
                continue
            value = b.let(f"x{place}", b.load_i32(x, [place]))
            for output, tap in uses:
                total = sums[output] + value * channel.weights[tap]
                sums[output] = b.let(f"sum{output}", total)
                if tap == taps.stop - 1:
                    b.store(y, [output], finish(sums[output]))


def _uses(
    line: WindowAxis, taps: range, outputs: int, place: int
) -> list[tuple[int, int]]:
    """Return the outputs that use an input of a block, each with its tap."""
    uses: list[tuple[int, int]] = []
    for output in range(outputs):
        tap, rest = divmod(place - output * line.stride, line.dilation)
        if not rest and 0 <= tap < len(taps):
            uses.append((output, taps.start + tap))
    return uses


SCHEDULES = tuple(
    Schedule(
        f"rvm.{name}.line",
        op,
        frozenset({"rvm"}),
        _configs,
        _build,
        disable_scheduling=True,
        takes_weight_zero_point=True,
    )
    for name, op in (("depthwise", "depthwise_conv2d"), ("conv2d", "conv2d"))
)
