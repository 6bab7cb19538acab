"""average_pool2d on Helium: sums of eight channels in int16 lanes."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Builder, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import pool_window, stored_mean
from firmwright.ops.requantize import quantized_activation_range
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES

_C = read_sections(__file__)

# Windows must be inside the input and hold at most 255 values, so that a sum fits int16
# (255 * 128 < 2^15). The mean is the division of the definition, which compilers turn
# into a multiplication. The last channel block overlaps its predecessor. When rows
# arrive one at a time (`mve_add_row`), sums have 32 bits, four channels per vector.

_CHANNELS = 8
_MAX_TAPS = 255

_PORTABLE = "\n".join(
    [_C["portable"], *(f"c{i} = sums[{i}];" for i in range(_CHANNELS))]
)

_TEXT = "\n".join(
    [_C["text"], *(f"c{i} = vgetq_lane_s16(sums, {i});" for i in range(_CHANNELS))]
)


def _meaning(
    x: Array, rows: int, columns: int, row_step: int, step: int
) -> tuple[Array, ...]:
    at = (np.arange(rows)[:, None] * row_step + np.arange(columns) * step).reshape(-1)
    values = np.asarray(x, np.int64)
    return tuple(values[at + c].sum(axis=0).astype(np.int32) for c in range(_CHANNELS))


WINDOW_SUM = Intrinsic(
    "mve_sum_8",
    (
        *pointers(INT8, x=_CHANNELS),
        *immediates("rows", "columns", "row_step", "step"),
        *(Operand(f"c{i}", "out", INT32) for i in range(_CHANNELS)),
    ),
    _meaning,
    _PORTABLE,
    "Sums of eight channels over a window.",
    requires="mve",
    text={"gnu": _TEXT},
    count=lambda args: 10 + args[1] * (4 + 4 * args[2]),
)


def _add_meaning(acc: Array, x: Array, pixels: int, channels: int) -> Array:
    values = np.asarray(x, np.int64)[: pixels * channels]
    sums = values.reshape(pixels, channels, *values.shape[1:]).sum(axis=0)
    total: Array = np.asarray(acc, np.int64) + sums
    return total.astype(np.int32)


ADD_PIXEL_ROW = Intrinsic(
    "mve_add_row",
    (
        *pointers(INT32, "rw", acc=1),
        *pointers(INT8, x=1),
        *immediates("pixels", "channels"),
    ),
    _add_meaning,
    _C["add_portable"],
    "Adds pixels to one sum a channel.",
    requires="mve",
    text={"gnu": _C["add_text"]},
    definitions=(KEEP_STORES,),
    count=lambda args: 6 + divide_up(args[3], 4) * (9 + 7 * args[2]),
)

INTRINSICS = (WINDOW_SUM, ADD_PIXEL_ROW)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    window = pool_window(op)
    fits = window.size[0] * window.size[1] <= _MAX_TAPS and window.dilation == (1, 1)
    guarded = window.guarded(0) or window.guarded(1)
    if op.input(0).dtype != INT8 or op.output.shape[3] < _CHANNELS:
        return ()
    return (NO_CONFIG,) if fits and not guarded else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    window = pool_window(op)
    batch, height, width, channels = op.output.shape
    in_rows, in_cols = window.input_size
    taps = window.size[0] * window.size[1]
    last = (window.size[0] - 1) * in_cols + window.size[1] - 1
    reach = last * channels + _CHANNELS
    extents = (batch * height, width, divide_up(channels, _CHANNELS))
    with b.loops("row ox block", extents) as (row, ox, block):
        channel = b.let("channel", minimum(block * _CHANNELS, channels - _CHANNELS))
        n, oy = (row // height, row % height) if batch > 1 else (row * 0, row)
        corner = (n * in_rows + oy * window.stride[0]) * in_cols + ox * window.stride[1]
        sums = b.reg("sum", INT32, _CHANNELS)
        registers = [b.load(sums, [i]) for i in range(_CHANNELS)]
        x = b.pointer(b.input(0), corner * channels + channel, reach)
        steps = [*window.size, in_cols * channels, channels]
        b.evaluate(WINDOW_SUM.name, [x, *steps, *registers])
        place = (row * width + ox) * channels + channel
        y = b.view("out", b.y, place, (_CHANNELS,), access="w")
        for i in range(_CHANNELS):
            b.store(y, [i], _mean(op, b.load(sums, [i]), taps))


def _mean(op: OpCall, total: ArithExpr, taps: int) -> ArithExpr:
    activation = op.attributes(ActivationAttrs).activation
    low, high = quantized_activation_range(activation, op.output)
    mean = stored_mean(op, total, taps)
    return minimum(maximum(mean, low), high).cast(INT8)


def _take_rows(op: OpCall, b: Builder, x: tir.Buffer, acc: tir.Buffer) -> None:
    _, rows, columns, channels = x.shape
    sums = b.pointer(acc, 0, channels, "rw")
    pixels = b.pointer(x, 0, x.elements)
    b.evaluate(ADD_PIXEL_ROW.name, [sums, pixels, rows * columns, channels])


SCHEDULES = (
    Schedule(
        "helium.average_pool2d.sums",
        "average_pool2d",
        frozenset({"mve"}),
        _configs,
        _build,
        fold=_take_rows,
    ),
)
