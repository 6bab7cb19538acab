"""float32 depthwise_conv2d with an FPU: a channel's weights and window in registers.

A conv2d of one input channel is computed in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, call_intrinsic, immediate
from firmwright.kernels.contract import BiasAdder, InterleavedChannels
from firmwright.kernels.depthwise_contract import (
    DepthwiseContract,
    OutsideTaps,
    WindowInputs,
)
from firmwright.kernels.vfp.gemm import MultiplyAdd
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.depthwise import (
    channel_loop,
    channel_views,
    load_window,
    output_rows,
)
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.fpu.microkernels import (
    FPU_STYLES,
    activated,
)
from firmwright.schedules.skip_constant_channels import order_all_channels
from firmwright.schedules.window_bounds import WindowAxis, window_axes

# One channel at a time. Along an output row, each input element is loaded once per
# strip of adjacent outputs and stays in a register for all outputs that use it. A
# narrow row is one strip; a wide row is a loop of strips between border code that omits
# taps outside the input. Products are summed row by row as in the default loops, so the
# bits are equal.

_MAX_TAPS = 12
"""Windows of at most this many taps leave registers for sums."""
_NARROW = 6
"""Rows of at most this many outputs are one strip."""
_CONTRACT = DepthwiseContract(
    channels=1,
    outputs=4,
    inputs=WindowInputs.STRIP,
    outside=OutsideTaps.OMITTED,
    layout=InterleavedChannels(FLOAT32, (1,)),
    bias=BiasAdder.EPILOGUE,
)
_MAX_UNROLLED = 400
"""Maximum number of unrolled taps over all kinds of rows."""


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != FLOAT32 or op.attributes(WindowAttrs).dilation != (1, 1):
        return ()
    if op.op == "conv2d" and op.input(0).shape[3] > 1:
        return ()
    rows, columns = window_axes(op)
    taps = rows.taps * columns.taps
    seen = all(run.taps for run in (*rows.runs(), *columns.runs()))
    outputs = sum(len(strip) for strip, _ in _strips(columns))
    unrolled = outputs * len(rows.runs()) * taps
    fits = taps <= _MAX_TAPS and seen and unrolled <= _MAX_UNROLLED
    return (NO_CONFIG,) if fits else ()


def _strips(columns: WindowAxis) -> list[tuple[range, int]]:
    """Partition a row into strips of outputs, each with its number of repetitions."""
    outputs = columns.outputs
    inside = [o for o in outputs if len(columns.valid(o)) == columns.taps]
    whole = range(inside[0], inside[-1] + 1) if inside else range(0)
    size = _CONTRACT.outputs
    if len(outputs) <= _NARROW or len(whole) < 2 * size:
        return [(outputs, 1)]
    count = len(whole) // size
    after = whole.start + count * size
    strips = [
        (range(whole.start), 1),
        (range(whole.start, whole.start + size), count),
        (range(after, len(outputs)), 1),
    ]
    return [(part, times) for part, times in strips if part]


@dataclass(frozen=True, slots=True)
class _FloatOutputRow:
    style: MultiplyAdd
    columns: WindowAxis
    rows: range
    weights: Sequence[Sequence[ArithExpr]]
    finish: FinishElement
    x: tir.Buffer
    y: tir.Buffer

    def strip(self, b: Kernel, outputs: range, shift: ArithExpr) -> None:
        columns = self.columns
        inputs = dict[tuple[int, int], ArithExpr]()
        for output in outputs:
            first = output * columns.stride - columns.before
            valid = columns.valid(output)
            for kx, ky in product(valid, self.rows):
                position = (ky, first + kx)
                if position not in inputs:
                    at = shift * columns.stride + (first + kx)
                    value = b.load(self.x, [ky - self.rows.start, at])
                    inputs[position] = b.let("x", value)
            taps: list[tuple[ArithExpr, ArithExpr]] = []
            for ky, kx in product(self.rows, valid):
                taps.append((inputs[ky, first + kx], self.weights[ky][kx]))
            b.store(self.y, [shift + output], self.finish(self._sum(taps)))

    def _sum(self, taps: Sequence[tuple[ArithExpr, ArithExpr]]) -> ArithExpr:
        total = taps[0][0] * taps[0][1]
        for x, w in taps[1:]:
            if self.style is MultiplyAdd.CHAINED:
                total = call_intrinsic("vmla_f32", [total, x, w], FLOAT32)
            else:
                total = total + x * w
        return total


def _build(style: MultiplyAdd, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weights_of(op)
    by_channel = kernel if op.op == "conv2d" else np.moveaxis(kernel, 3, 0)
    channels = len(by_channel)
    height, width = kernel.shape[1:3]
    packed = _CONTRACT.layout.pack(by_channel.reshape(channels, -1))
    table = b.constant("weights", packed.reshape(channels, -1), FLOAT32)
    bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
    rows, columns = window_axes(op)
    with channel_loop(b, order_all_channels(channels)) as (index, c):
        weights = load_window(b, table, index, (height, width), FLOAT32)
        channel_bias = b.let("channel_bias", b.load(bias, [index]))
        finish = partial(_finished, op, channel_bias)
        for at in output_rows(b, rows.runs(), finish):
            x, y = channel_views(b, op, at, c)
            row = _FloatOutputRow(style, columns, at.taps, weights, at.finish, x, y)
            _strip_by_strip(b, row)


def _finished(op: OpCall, bias: ArithExpr, total: ArithExpr) -> ArithExpr:
    return activated(op, total + bias)


def _strip_by_strip(b: Kernel, row: _FloatOutputRow) -> None:
    for outputs, times in _strips(row.columns):
        if times == 1:
            row.strip(b, outputs, ArithExpr(immediate(0, INDEX)))
        else:
            with b.for_("strip", times) as strip:
                row.strip(b, outputs, strip * len(outputs))


SCHEDULES = tuple(
    Schedule(
        f"fpu.depthwise.{style.value}",
        op,
        requires,
        _configs,
        partial(_build, style),
        disable_scheduling=True,
    )
    for style, requires in FPU_STYLES.items()
    for op in ("depthwise_conv2d", "conv2d")
)
