"""max_pool2d of few channels on Helium: words of several pixels in a vector.

The words of a vector are of as many output pixels as there are in 16 bytes. Those of a
tap are gathered. With 8 channels of int8 and stride 2:

    input row    |p0   |p1   |p2   |p3   |        2 words for each pixel
    tap 0         0 1         2 3                 lanes 0 to 3
    tap 1               0 1         2 3
"""

import math
from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.attribute_kinds import ACTIVATIONS
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ExprLike
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs
from firmwright.kernels.elementwise import WINDOW_NUMBERS
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.pool_windows import (
    has_few_spans,
    pixel_runs,
    state_distances,
)
from firmwright.schedules.pooling import activation_limits, pool_pointers
from firmwright.schedules.schedule_factories import (
    helium_float_schedule,
    helium_schedule,
)

_C = read_sections(__file__)
_WORD_BYTES, _VECTOR_BYTES = 4, 16
_PIXEL_BYTES = (4, 8, 16)
_DTYPES = (INT8, INT16, FLOAT32)
_KEEP = "KEEP_STORES((void *)y);\n"
_LEAST = float(np.finfo(np.float32).min)


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
    low: float,
    high: float,
    count: int,
) -> Array:
    places = np.arange(count)
    corners = places // pixel * pixel_step + places % pixel
    down, across = np.ix_(np.arange(rows) * row_step, np.arange(columns) * step)
    taps = corners[:, None] + (down + across).reshape(-1)
    largest = np.fmax.reduce(np.asarray(x)[taps], axis=1)
    maxima: Array = np.fmin(np.fmax(largest, low), high)
    return maxima


def _executed(dtype: DType, args: Sequence[int]) -> int:
    rows, columns = args[2], args[3]
    vectors = divide_up(args[-1] * dtype.size_bytes, _VECTOR_BYTES)
    return 22 + vectors * (9 + rows * (4 + 4 * columns))


def _maximum(dtype: DType) -> Intrinsic:
    is_float = dtype == FLOAT32
    element, lanes = dtype.c_type, _VECTOR_BYTES // dtype.size_bytes
    names = {
        "element": element,
        "number": "float" if is_float else "int32_t",
        "kind": "nm" if is_float else "",
        "short": dtype.short.replace("i", "s"),
        "lane": f"float32x{lanes}_t" if is_float else f"int{dtype.bits}x{lanes}_t",
        "per_word": _WORD_BYTES // dtype.size_bytes,
    }
    limits = inputs(FLOAT32 if is_float else INT32, "low", "high")
    numbers = immediates(*WINDOW_NUMBERS, "pixel", "pixel_step")
    whole = fill_text(_C["vector"], **names, z="", p="", inside="", keep="")
    predicated = {"z": "_z", "p": "_p", "inside": ", inside", "keep": _KEEP}
    tail = fill_text(_C["vector"], **names, **predicated)
    parts = {"whole": indent(whole, "    "), "tail": indent(tail, "    ")}
    return Intrinsic(
        _name(dtype),
        (*pool_pointers(dtype), *numbers, *limits, *immediates("count")),
        lambda y, *given: _maxima(*given).astype(dtype.np),
        fill_text(_C["portable"], **names),
        "The maxima of `count` elements, of pixels of `pixel` elements.",
        requires="mvefp" if is_float else "mve",
        text={"gnu": fill_text(_C["gnu"], **names, **parts)},
        definitions=(KEEP_STORES,),
        count=partial(_executed, dtype),
    )


def _configs(dtypes: Sequence[DType], op: OpCall) -> Sequence[ScheduleConfig]:
    x = op.input(0)
    is_narrow = x.shape[3] * x.dtype.size_bytes in _PIXEL_BYTES
    fits = x.dtype in dtypes and is_narrow and has_few_spans(op)
    return (NO_CONFIG,) if fits else ()


def _limits(op: OpCall) -> list[ExprLike]:
    """Return the least and the largest result."""
    if op.output.dtype != FLOAT32:
        return list(activation_limits(op))
    activation = op.attributes(ActivationAttrs).activation
    low, high = ACTIVATIONS[activation]
    limits = _LEAST if low is None else low, math.inf if high is None else high
    return [tir.FloatImm(limit, FLOAT32) for limit in limits]


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    """Call the micro-kernel for all pixels of each run."""
    y = b.view("out", b.y, 0, b.y.shape, access="w", alignment=_WORD_BYTES)
    x = b.view("taps", b.input(0), 0, b.input(0).shape, alignment=_WORD_BYTES)
    channels = op.output.shape[3]
    for run in pixel_runs(op, b):
        count = run.count * channels
        reach = (run.count - 1) * run.step + run.window.reach
        ends = b.pointer(y, run.place, count, "w"), b.pointer(x, run.corner, reach)
        numbers = [*run.window.numbers, channels, run.step, *_limits(op), count]
        b.evaluate(_name(op.input(0).dtype), [*ends, *numbers])
    state_distances(op, b)


INTRINSICS = tuple(map(_maximum, _DTYPES))
SCHEDULES = tuple(
    make(
        "helium.max_pool2d.pixels",
        "max_pool2d",
        configs=partial(_configs, dtypes),
        build=_build,
    )
    for make, dtypes in (
        (helium_schedule, (INT8, INT16)),
        (helium_float_schedule, (FLOAT32,)),
    )
)
