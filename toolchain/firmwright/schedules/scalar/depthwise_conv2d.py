"""depthwise_conv2d on cores without SIMD: a channel at a time, weights in registers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.contract import InterleavedChannels
from firmwright.kernels.depthwise_contract import (
    DepthwiseContract,
    OutsideTaps,
    WindowInputs,
)
from firmwright.ops.conv2d import channel_weights
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.depthwise import (
    channel_loop,
    channel_views,
    find_computed_channels,
    load_window,
    output_rows,
)
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.scalar.layer_plan import (
    SUPPORTED_DTYPES,
    ScalarLayerPlan,
    plan_float_layer,
    plan_integer_layer,
)
from firmwright.schedules.skip_constant_channels import (
    order_all_channels,
)
from firmwright.schedules.sliding_window import SlidingWindow
from firmwright.schedules.window_bounds import (
    WindowAxis,
    split_by_valid_taps,
    window_axes,
)

# Output rows (and columns) with equal valid taps form a class with its own unrolled
# taps; taps outside the input contribute the zero point, which is added to the bias
# once per row. With a horizontal stride of 1, each input column is visited once: it
# completes one output and contributes to the following ones. On Armv6-M, where sums
# that rotate are moved in eight registers, the code of a short row is straight, without
# the taps outside the input. Constant channels are skipped if there are many.

_MAX_UNROLLED_TAPS = 120
_SHORT_ROW = 6
"""Maximum outputs of a row whose code is straight."""


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype not in SUPPORTED_DTYPES:
        return ()
    rows, columns = window_axes(op)
    if not (rows.has_taps and columns.has_taps):
        return ()
    unrolled = len(rows.runs()) * len(columns.runs()) * rows.taps * columns.taps
    return (NO_CONFIG,) if unrolled <= _MAX_UNROLLED_TAPS else ()


@dataclass(frozen=True, slots=True)
class _ScalarChannel:
    window: ConvWindow
    layer: ScalarLayerPlan
    weights: Sequence[Sequence[ArithExpr]]
    start: ArithExpr
    finish: FinishElement

    def plus_outside(
        self, total: ArithExpr, taps: Iterable[tuple[int, int]]
    ) -> ArithExpr:
        if self.layer.zero_point:
            for ky, kx in taps:
                total = total + self.weights[ky][kx] * self.layer.zero_point
        return total


def _build(
    op: OpCall,
    config: ScheduleConfig,
    b: Kernel,
    *,
    in_32_bits: bool = False,
    has_short_rows: bool = False,
) -> None:
    window, flat = kernel_window(op), channel_weights(op)
    if op.input(0).dtype == INT8:
        found = find_computed_channels(b, op)
        found.constants.emit_stores(b, 0, b.y.elements // b.y.shape[3])
        order = found.order
        layer = plan_integer_layer(
            b, op, found, may_bake=not in_32_bits, in_32_bits=in_32_bits
        )
    else:
        order = order_all_channels(len(flat))
        layer = plan_float_layer(b, op)
    chosen = list(order.rows)
    is_wide = layer.factors.max() > 1 or flat.dtype == INT16.np
    kind = INT16 if layer.dtype == INT8 and is_wide else layer.dtype
    contract = _contract(window, layer.dtype, kind)
    packed = contract.layout.pack(flat[chosen] * layer.factors[:, None])
    table = b.constant("weights", packed.reshape(len(chosen), -1), kind)
    rows, columns = window_axes(op)
    with channel_loop(b, order) as (index, c):
        finish = layer.bind_group(b)(index, 0)
        weights = load_window(b, table, index, window.size, layer.sum_dtype)
        start = b.let("base", layer.start(b, index))
        for row in output_rows(b, rows.runs(), finish):
            channel = _ScalarChannel(window, layer, weights, start, row.finish)
            x, y = channel_views(b, op, row, c)
            outside = product(rows.missing(row.taps), range(window.size[1]))
            begin = b.let("start", channel.plus_outside(start, outside))
            out = _ScalarOutputRow(channel, row.taps, x, y, begin)
            is_short = has_short_rows and len(columns.outputs) <= _SHORT_ROW
            if contract.inputs is WindowInputs.ROTATING and is_short:
                _emit_short_row(b, out, columns)
            elif contract.inputs is WindowInputs.ROTATING:
                _emit_sliding_window(b, out, y.shape[0])
            else:
                _emit_fixed_window(b, out, y.shape[0])


def _contract(window: ConvWindow, dtype: DType, element: DType) -> DepthwiseContract:
    """Return the contract of a channel's output row.

    Floats are summed row by row, the order of the reference kernel.
    """
    is_dense = window.stride[1] == window.dilation[1] == 1 and window.size[1] > 1
    is_rotating = is_dense and dtype == INT8
    return DepthwiseContract(
        channels=1,
        outputs=1,
        inputs=WindowInputs.ROTATING if is_rotating else WindowInputs.IN_PLACE,
        outside=OutsideTaps.ADDED,
        layout=InterleavedChannels(element, (1,)),
    )


@dataclass(frozen=True, slots=True)
class _ScalarOutputRow:
    channel: _ScalarChannel
    rows: range
    x: tir.Buffer
    y: tir.Buffer
    start: ArithExpr

    def load(self, b: Kernel, ky: int, ix: ArithExpr | int) -> ArithExpr:
        place = ky - self.rows.start
        return b.load(self.x, [place, ix]).cast(self.channel.layer.sum_dtype)

    def finish(self, b: Kernel, ox: ArithExpr | int, total: ArithExpr) -> None:
        b.store(self.y, [ox], self.channel.finish(total))


def _emit_fixed_window(b: Kernel, row: _ScalarOutputRow, out_width: int) -> None:
    channel, window = row.channel, row.channel.window
    for run in split_by_valid_taps(window, 1, out_width):
        unseen = [kx for kx in range(window.size[1]) if kx not in run.taps]
        outside = [(ky, kx) for ky in row.rows for kx in unseen]
        total = b.let("begin", channel.plus_outside(row.start, outside))
        with b.for_("ox", len(run.outputs), run.outputs.start) as ox:
            left = ox * window.stride[1] - window.padding[2]
            for ky in row.rows:
                for kx in run.taps:
                    x = row.load(b, ky, left + kx * window.dilation[1])
                    total = total + x * channel.weights[ky][kx]
            row.finish(b, ox, total)


def _emit_short_row(b: Kernel, row: _ScalarOutputRow, columns: WindowAxis) -> None:
    """Emit one input column after another, each for all outputs that use it."""
    channel = row.channel
    sums: dict[int, ArithExpr] = {}
    for run in columns.runs():
        missing = columns.missing(run.taps)
        outside = [(ky, kx) for ky in row.rows for kx in missing]
        begin = row.start
        if missing and channel.layer.zero_point:
            begin = b.let("begin", channel.plus_outside(begin, outside))
        sums |= dict.fromkeys(run.outputs, begin)
    for line in SlidingWindow(columns).lines:
        values = [(ky, b.let("x", row.load(b, ky, line.index))) for ky in row.rows]
        for output, kx in line.uses:
            for ky, value in values:
                sums[output] = sums[output] + channel.weights[ky][kx] * value
            sums[output] = b.let("sum", sums[output])
        for output in line.ends:
            row.finish(b, output, sums.pop(output))


def _emit_sliding_window(b: Kernel, row: _ScalarOutputRow, out_width: int) -> None:
    """Emit one input column after another; before each, acc[j] lacks j + 1 columns."""
    window = row.channel.window
    reach, left = window.size[1], window.padding[2]
    acc = b.reg("acc", INT32, reach)
    for j in range(reach - 1):
        b.store(acc, [j], row.start)
    # Until the first output is complete:
    for column in range(reach - 1):
        for j in range(column + 1):
            total = _column(b, row, b.load(acc, [j]), column - left, column - j)
            b.store(acc, [j], total)
    # A window wider than the input has columns to its right from the first output on.
    complete = max(0, min(out_width, window.input_size[1] + left - reach + 1))
    if complete:
        with b.for_("ox", complete) as ox:
            _next_column(b, row, acc, ox + (reach - 1 - left))
            row.finish(b, ox, b.load(acc, [reach - 1]))
    # Columns to the right of the input:
    for last in range(complete, out_width):
        _next_column(b, row, acc, None)
        row.finish(b, last, b.load(acc, [reach - 1]))


def _column(
    b: Kernel, row: _ScalarOutputRow, total: ArithExpr, ix: int, kx: int
) -> ArithExpr:
    if not 0 <= ix < row.channel.window.input_size[1]:
        return row.channel.plus_outside(total, ((ky, kx) for ky in row.rows))
    for ky in row.rows:
        total = total + row.load(b, ky, ix) * row.channel.weights[ky][kx]
    return total


def _next_column(
    b: Kernel, row: _ScalarOutputRow, acc: tir.Buffer, ix: ArithExpr | None
) -> None:
    """Accumulate input column `ix`; the completed sum is then the last one of `acc`."""
    reach, channel = row.channel.window.size[1], row.channel
    values = {}
    if ix is not None:
        for ky in row.rows:
            values[ky] = b.let("x", row.load(b, ky, ix))
    sums = []
    for j in range(reach):
        kx = reach - 1 - j
        total = b.load(acc, [j]) if j < reach - 1 else row.start
        if ix is None:
            total = channel.plus_outside(total, ((ky, kx) for ky in row.rows))
        for ky, value in values.items():
            total = total + channel.weights[ky][kx] * value
        sums.append(b.let("sum", total))
    b.store(acc, [reach - 1], sums[0])
    for j in range(reach - 1):
        b.store(acc, [j], sums[j + 1])


SCHEDULES = (
    Schedule(
        "scalar.depthwise.channel",
        "depthwise_conv2d",
        frozenset(),
        _configs,
        _build,
        takes_weight_zero_point=True,
    ),
    *(
        Schedule(
            f"{feature}.depthwise.channel",
            "depthwise_conv2d",
            frozenset({feature}),
            lambda op: _configs(op) if op.input(0).dtype == INT8 else (),
            partial(_build, in_32_bits=True, has_short_rows=feature == "thumb1"),
            takes_weight_zero_point=True,
        )
        for feature in ("thumb1", "xtensa")
    ),
)
