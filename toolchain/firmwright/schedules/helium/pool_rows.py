"""max_pool2d of few channels on Helium: words of several pixels in a vector.

The words of a vector are of as many output pixels as there are in 16 bytes. Those of a
tap are gathered. With 8 channels of int8 and stride 2:

    input row    |p0   |p1   |p2   |p3   |        2 words for each pixel
    tap 0         0 1         2 3                 lanes 0 to 3
    tap 1               0 1         2 3

Pixels whose windows cross the border are computed one by one, as those of pool2d.py.
"""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates
from firmwright.kernels.elementwise import WINDOW_NUMBERS
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium.pool2d import POOLS
from firmwright.schedules.pool_windows import (
    WindowRun,
    call_pixels,
    has_few_spans,
    pixel_runs,
    state_distances,
)
from firmwright.schedules.pooling import activation_limits, pool_pointers
from firmwright.schedules.schedule_factories import helium_schedule

_C = read_sections(__file__)
_WORD_BYTES, _VECTOR_BYTES = 4, 16
_PIXEL_BYTES = (4, 8, 16)
_NUMBERS = (*WINDOW_NUMBERS, "pixel", "pixel_step", "low", "high", "count")


def _name(dtype: DType) -> str:
    return f"mve_max_pixels_{dtype.name}"


def _maxima(
    x: Array,
    rows: int,
    columns: int,
    row_step: int,
    step: int,
    pixel: int,
    pixel_step: int,
    low: int,
    high: int,
    count: int,
) -> Array:
    places = np.arange(count)
    corners = places // pixel * pixel_step + places % pixel
    down, across = np.ix_(np.arange(rows) * row_step, np.arange(columns) * step)
    taps = corners[:, None] + (down + across).reshape(-1)
    maxima: Array = np.clip(np.asarray(x)[taps].max(axis=1), low, high)
    return maxima


def _executed(dtype: DType, args: Sequence[int]) -> int:
    rows, columns = args[2], args[3]
    vectors = divide_up(args[-1] * dtype.size_bytes, _VECTOR_BYTES)
    return 22 + vectors * (9 + rows * (4 + 4 * columns))


def _maximum(dtype: DType) -> Intrinsic:
    names = {
        "element": dtype.c_type,
        "short": f"s{dtype.bits}",
        "lane": f"int{dtype.bits}x{_VECTOR_BYTES // dtype.size_bytes}_t",
        "per_word": _WORD_BYTES // dtype.size_bytes,
    }
    whole = fill_text(_C["vector"], **names, z="", p="", inside="")
    tail = fill_text(_C["vector"], **names, z="_z", p="_p", inside=", inside")
    parts = {"whole": indent(whole, "    "), "tail": indent(tail, "    ")}
    return Intrinsic(
        _name(dtype),
        (*pool_pointers(dtype), *immediates(*_NUMBERS)),
        lambda y, *given: _maxima(*given).astype(dtype.np),
        fill_text(_C["portable"], **names),
        "The maxima of `count` elements, of pixels of `pixel` elements.",
        requires="mve",
        text={"gnu": fill_text(_C["gnu"], **names, **parts)},
        definitions=(KEEP_STORES,),
        count=partial(_executed, dtype),
    )


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    x = op.input(0)
    is_integer = x.dtype in (INT8, INT16)
    is_narrow = x.shape[3] * x.dtype.size_bytes in _PIXEL_BYTES
    return (NO_CONFIG,) if is_integer and is_narrow and has_few_spans(op) else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    y = b.view("out", b.y, 0, b.y.shape, access="w", alignment=_WORD_BYTES)
    x = b.view("taps", b.input(0), 0, b.input(0).shape, alignment=_WORD_BYTES)
    for run in pixel_runs(op, b):
        if run.count == 1:
            call_pixels(op, b, run, POOLS.maximum(op, run.window))
        else:
            _call_row(op, b, run, y, x)
    state_distances(op, b)


def _call_row(
    op: OpCall, b: Kernel, run: WindowRun, y: tir.Buffer, x: tir.Buffer
) -> None:
    """Call the micro-kernel for all pixels of a run."""
    channels = op.output.shape[3]
    count = run.count * channels
    reach = (run.count - 1) * run.step + run.window.reach
    ends = b.pointer(y, run.place, count, "w"), b.pointer(x, run.corner, reach)
    numbers = [*run.window.numbers, channels, run.step, *activation_limits(op)]
    b.evaluate(_name(op.input(0).dtype), [*ends, *numbers, count])


INTRINSICS = tuple(_maximum(dtype) for dtype in (INT8, INT16))
SCHEDULES = (
    helium_schedule(
        "helium.max_pool2d.pixels", "max_pool2d", configs=_configs, build=_build
    ),
)
