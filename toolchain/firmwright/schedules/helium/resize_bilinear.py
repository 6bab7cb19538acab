"""resize_bilinear on Helium: four or eight channels of a pixel at a time."""

from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, Array, DType
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.resize import HALF_BITS, load_neighbors, share_bits, sum_dtype
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_C = read_sections(__file__)


def _meaning(y: Array, *values: Array) -> Array:
    *taps, up, down, to_left, to_right, bits, count = values
    a, b, c, d = (np.asarray(each)[:count] for each in taps)
    if a.dtype == np.float32:
        floats: Array = (
            a * up * to_left
            + c * down * to_left
            + b * up * to_right
            + d * down * to_right
        )
        return floats
    a, b, c, d = (each.astype(np.int64) for each in (a, b, c, d))
    total = (a * to_left + b * to_right) * up + (c * to_left + d * to_right) * down
    result: Array = (total + (1 << bits - 1) - (total < 0)) >> bits
    return result


def _interpolate(dtype: DType, lane: int) -> Intrinsic:
    """Return the intrinsic for `dtype` with lanes of `lane` bits."""
    kind = "float" if dtype == FLOAT32 else "int"
    v = f"{'f' if dtype == FLOAT32 else 's'}{lane}"
    size = {1: "b", 2: "h", 4: "w"}[dtype.size_bytes]

    def step_text(load: str, inside: str) -> str:
        text = fill_text(
            _C[f"step_{kind}"],
            v=v,
            vector=f"{kind}{lane}x{128 // lane}_t",
            scalar=f"int{lane}_t",
            sign=lane - 1,
            load=load,
            inside=inside,
        )
        return indent(text, "    ")

    text = fill_text(
        _C["text"],
        store_p=f"vstr{size}q_p_{v}",
        store=f"vstr{size}q_{v}",
        step=step_text(f"vldr{size}q_{v}", ""),
        tail=step_text(f"vldr{size}q_z_{v}", ", inside"),
        n=128 // lane,
        lane=lane,
    )
    weight_dtype = FLOAT32 if dtype == FLOAT32 else INT32
    return Intrinsic(
        f"mve_interpolate_{dtype.name}_{lane}",
        (
            *pointers(dtype, "w", y=1),
            *pointers(dtype, a=1, b=1, c=1, d=1),
            *inputs(weight_dtype, "up", "down", "to_left", "to_right"),
            *immediates("bits", "count"),
        ),
        _meaning,
        fill_text(_C[f"portable_{kind}"], element=dtype.c_type),
        "Interpolates `count` channels between four pixels.",
        requires="mvefp",
        text={"gnu": text},
        count=lambda args: 6 - args[-1] * lane // -128 * 17,
    )


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _, height, width, depth = op.input(0).shape
    images, rows, cols, _ = op.output.shape
    bits, wide, y = share_bits(op, 0, 1), sum_dtype(op), b.y
    lane = 16 if op.input(0).dtype == INT8 and bits <= HALF_BITS else 32
    with b.loops("n oy", (images, rows)) as (n, oy):
        *pair, up, down = load_neighbors(b, 0, oy, wide)
        with b.for_("ox", cols) as ox:
            *sides, to_left, to_right = load_neighbors(b, 1, ox, wide)
            taps = []
            for row in pair:
                for x in sides:
                    place = ((n * height + row) * width + x) * depth
                    taps.append(b.pointer(b.input(0), place, depth))
            to = b.pointer(y, ((n * rows + oy) * cols + ox) * depth, depth, "w")
            weights = [up, down, to_left, to_right]
            name = f"mve_interpolate_{y.dtype.name}_{lane}"
            b.evaluate(name, [to, *taps, *weights, bits, depth])


_KINDS = ((INT8, 16), (INT8, 32), (INT16, 32), (FLOAT32, 32))
INTRINSICS = tuple(_interpolate(*kind) for kind in _KINDS)
SCHEDULES = (
    Schedule(
        "helium.resize_bilinear.channels",
        "resize_bilinear",
        frozenset({"mvefp"}),
        lambda op: (NO_CONFIG,) if sum_dtype(op) != INT64 else (),
        _build,
    ),
)
