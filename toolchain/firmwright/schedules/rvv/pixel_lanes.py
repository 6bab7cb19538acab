"""Convolutions of few output channels on RISC-V vectors: pixels of a row in lanes.

Lanes of channels would mostly be idle. A call of `rvv_pixels_N` computes N channels of
all pixels of an output row: a tap is a load of one input for each lane, at the distance
of pixels, and VWMACC with the weight of each channel, which is a number. Weights of a
call are [tap, channel], those relative to a zero point of int16.
"""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT16, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.isa.c_numbers import equal, word
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import channel_weights
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.row_band import pixel_blocks, window_rows
from firmwright.schedules.rvv.endings import (
    AWAY,
    BYTES,
    NOMINAL_LANES,
    ONCE,
    limit_lanes,
)
from firmwright.schedules.rvv.layer_endings import layer_ending
from firmwright.schedules.rvv.window_kernel import ROW_MOVES

_C = read_sections(__file__)
_AT_ONCE = 3
"""Channels of a call: sums are in groups of eight of the 32 registers."""
_CHANNELS_MAX = 16
"""More channels fill lanes."""


def _name(weight: DType, channels: int) -> str:
    return f"rvv_pixels{'_wide' * (weight == INT16)}_{channels}"


# ---- the micro-kernels ---------------------------------------------------------------


def _ending(channel: int, channels: int) -> str:
    """Return C that requantizes and stores the sums of a channel of the call."""
    lanes = NOMINAL_LANES
    k, words = VectorBuilder("ending"), partial(riscv_row, lanes, INT32)
    place = RegisterPlace(RegisterClass.VECTOR, INT32, lanes)
    total = k.variable(f"sum{channel}", place)
    multiplier = k.number(f"q[{channels + channel}]")
    with k.when(k(equal, k.number("rounding"), ONCE)):
        k(words("vmulh_vx"), total, multiplier, into=total)
    with k.otherwise():
        k(words("vsmul_vx"), total, multiplier, into=total)
    with k.when(k(equal, k.number("rounding"), AWAY)):
        k(words("vadd_vv"), total, k(words("vsra_vx"), total, 31), into=total)
    shift = k(word, k.number(f"s[{channel}]"))
    row = riscv_row(lanes, INT16, "vnclip_wx")
    short = k.named(f"short{channel}", row, total, shift)
    limit_lanes(k, short, lanes, k.number("zero_point"), name=f"bytes{channel}")
    store = f"__riscv_vsse8_v_i8m2(to + {channel}, channels, bytes{channel}, vl);"
    return f"{vector_text(k.build_vectors())}\n{store}"


def _text(weight: DType, channels: int) -> str:
    numbers = range(channels)
    start = [f"vint32m8_t sum{c} = __riscv_vmv_v_x_i32m8(q[{c}], vl);" for c in numbers]
    products = [
        f"sum{c} = __riscv_vwmacc_vx_i32m8(sum{c}, weight[{c}], halves, vl);"
        for c in numbers
    ]
    tap = fill_text(
        _C["tap"],
        products="\n".join(products),
        channels=channels,
    )
    return fill_text(
        _C["text"],
        sums=", ".join(f'"+vr"(sum{c})' for c in numbers),
        start=indent("\n".join(start), "    "),
        weight=weight.c_type,
        tap=indent(tap, " " * 16),
        last=indent(tap, " " * 12),
        finish=indent("\n".join(_ending(c, channels) for c in numbers), "    "),
    )


def _meaning(
    n: int, w: Array, x: Array, q: Array, s: Array, y: Array, *rest: Array
) -> Array:
    count, pixel_step, rows, columns, row_step, channels = map(int, rest[:6])
    p, i, j = np.ogrid[:count, :rows, :columns]
    at = (p * pixel_step + i * row_step + j).reshape(count, -1)
    values = np.asarray(x, np.int64)[at]

    def by_channel(table: Array, rows: int, dtype: type) -> Array:
        used = np.asarray(table)[: rows * n]
        return used.reshape(rows, n, *used.shape[1:]).astype(dtype)

    weights = by_channel(w, at.shape[1], np.int64)
    sums = np.einsum("pk...,kc...->pc...", values, weights)
    bias, multiplier = by_channel(q, 2, np.int32)
    (right,) = by_channel(s, 1, np.int32)
    result, places = np.array(y), np.add.outer(np.arange(count) * channels, range(n))
    result[places] = BYTES.results(sums + bias, [multiplier], right, rest[6:])
    return result


def _count(channels: int, args: Sequence[int]) -> int:
    """Return the instructions with vectors of 128 bits."""
    count, _, rows, run = args[5:9]
    row = 6 + run * (4 + 2 * channels)
    return divide_up(count, NOMINAL_LANES) * (12 + rows * row + 12 * channels)


def _intrinsic(weight: DType, channels: int) -> Intrinsic:
    assert BYTES.element is not None
    steps = ("count", "pixel_step", "rows", "columns", "row_step", "channels")
    return Intrinsic(
        _name(weight, channels),
        (
            *pointers(weight, w=channels),
            *pointers(INT8, x=1),
            *pointers(INT32, q=2 * channels),
            *pointers(UINT16, s=channels),
            *pointers(INT8, "rw", y=channels),
            *immediates(*steps, *BYTES.settings),
        ),
        partial(_meaning, channels),
        fill_text(
            _C["portable"],
            channels=channels,
            result=BYTES.portable(str(channels)),
        ),
        f"Products of windows and the weights of {channels} channels, requantized.",
        requires="rvv",
        text={"gnu": _text(weight, channels)},
        calls=(BYTES.element.name,),
        count=partial(_count, channels),
    )


INTRINSICS = tuple(
    _intrinsic(weight, n) for weight in (INT8, INT16) for n in range(1, _AT_ONCE + 1)
)

# ---- layers --------------------------------------------------------------------------


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_small = op.output.shape[3] <= _CHANNELS_MAX
    is_apart = kernel_window(op).dilation[1] != 1
    if not is_small or op.input(0).dtype != INT8 or is_apart:
        return ()
    return (NO_CONFIG,) if layer_ending(op, takes_zero_point=True) else ()


def _single_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration of a depthwise layer of one input channel."""
    return _configs(op) if op.input(0).shape[3] == 1 else ()


def _groups(channels: int) -> list[tuple[int, int, int]]:
    """Return the first channel, the channels of a call, and the number of calls."""
    calls, rest = divmod(channels, _AT_ONCE)
    groups = [(0, _AT_ONCE, calls), (calls * _AT_ONCE, rest, 1)]
    return [group for group in groups if group[1] and group[2]]


def _block(pixels: int) -> int:
    """Return the pixels of a block of a pointwise layer, whose output may overlap."""
    blocks = [size for size in (2 * NOMINAL_LANES, NOMINAL_LANES) if size <= pixels]
    return min(blocks, key=lambda size: divide_up(pixels, size) * size, default=pixels)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    window, flat = kernel_window(op), channel_weights(op)
    layer = layer_ending(op, takes_zero_point=True)
    assert layer is not None
    channels, taps = flat.shape
    bias = fold_zero_point_into_bias(op, flat)
    table = np.stack([bias, np.resize(layer.factors[0], channels)])
    shares = [
        slice(first + at * n, first + (at + 1) * n)
        for first, n, calls in _groups(channels)
        for at in range(calls)
    ]
    element = INT16 if flat.dtype == INT16.np else INT8
    packed = np.concatenate([flat[share].T.reshape(-1) for share in shares])
    parameters = np.concatenate([table[:, share].reshape(-1) for share in shares])
    weights = b.constant("weights", packed, element)
    q = b.constant("parameters", parameters, INT32)
    s = b.constant("shifts", np.resize(layer.right, channels), UINT16)
    x, zero_point = b.input(0), per_tensor_quant(op.input(0)).zero_point
    rows, pitch = window.size[0], window.stride[1] * x.shape[3]
    run = taps // rows
    with Nest() as enter:
        if window.pointwise:
            pixels = b.y.elements // channels
            count = _block(pixels)
            source, row_step, first = x, 0, enter(pixel_blocks(b, pixels, count))
            start = first * pitch
        else:
            band = window_rows(b, window, zero_point, ROW_MOVES)
            source, start, row_step, row = enter(band)
            count = b.y.shape[2]
            first = row * count
        reach = (count - 1) * pitch + (rows - 1) * row_step + run
        numbers = (count, pitch, rows, run, row_step, channels, *layer.settings)
        for least, n, calls in _groups(channels):
            with b.for_("group", calls) as group:
                channel = group * n + least
                to, size = first * channels + channel, (count - 1) * channels + n
                operands = [
                    b.pointer(weights, channel * taps, n * taps),
                    b.pointer(source, start, reach),
                    b.pointer(q, channel * 2, n * 2),
                    b.pointer(s, channel, n),
                    b.pointer(b.y, to, size, "rw"),
                ]
                b.evaluate(_name(element, n), [*operands, *numbers])


SCHEDULES = tuple(
    Schedule(
        f"rvv.{op}.pixels",
        op,
        frozenset({"rvv"}),
        configs,
        _build,
        takes_weight_zero_point=True,
    )
    for op, configs in (("conv2d", _configs), ("depthwise_conv2d", _single_configs))
)
