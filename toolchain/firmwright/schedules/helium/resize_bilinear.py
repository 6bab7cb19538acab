"""resize_bilinear on Helium: four or eight channels of a pixel at a time."""

from collections.abc import Sequence
from functools import partial
from itertools import chain, starmap

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, DType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa.c_numbers import negative
from firmwright.kernels.isa.lanes import constant
from firmwright.kernels.isa.mve import MVE
from firmwright.kernels.isa.mve_float import vaddq_f32, vmulq_n_f32
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.resize import HALF_BITS, load_neighbors, share_bits, sum_dtype
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES

_TAPS = (
    *(("a", "up", "to_left"), ("c", "down", "to_left")),
    *(("b", "up", "to_right"), ("d", "down", "to_right")),
)
"""The taps in the order in which floats are added, and their two weights."""


_ROWS = ("vmulq_n", "vmlaq_n", "vqaddq", "vshrq_n", "vrshlq_n")


def _element(dtype: DType, **x: ArithExpr) -> ArithExpr:
    if dtype == FLOAT32:
        first, *others = (x[tap] * x[row] * x[side] for tap, row, side in _TAPS)
        return sum(others, start=first)
    a, b, c, d = (x[tap].cast(INT32) for tap in "abcd")
    upper = a * x["to_left"] + b * x["to_right"]
    lower = c * x["to_left"] + d * x["to_right"]
    total = upper * x["up"] + lower * x["down"]
    half = constant(1, INT32) << (x["bits"] - 1)
    return ((total + half - (total < 0).cast(INT32)) >> x["bits"]).cast(dtype)


def interpolation(dtype: DType, lane: int) -> ElementLoop:
    """Return the interpolation of `dtype` with lanes of `lane` bits."""
    taps = tuple(PointerOperand(name, dtype) for name in "abcd")
    y = PointerOperand("y", dtype, "w")
    if dtype == FLOAT32:
        return ElementLoop(taps, y, FLOAT32, _sum_floats)
    rows = {name: MVE.rows[f"{name}_s{lane}"] for name in _ROWS}

    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        def weighted(
            names: str, first: VirtualRegister, second: VirtualRegister
        ) -> VirtualRegister:
            left, right = (k.number(name) for name in names.split())
            return k(rows["vmlaq_n"], k(rows["vmulq_n"], first, left), second, right)

        a, b, c, d = lanes
        upper = weighted("to_left to_right", a, b)
        lower = weighted("to_left to_right", c, d)
        total = weighted("up down", upper, lower)
        nudged = k(rows["vqaddq"], total, k(rows["vshrq_n"], total, lane - 1))
        return k(rows["vrshlq_n"], nudged, k(negative, k.number("bits")))

    return ElementLoop(taps, y, INT16 if lane == 16 else INT32, compute)


def _sum_floats(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    taps = dict(zip("abcd", lanes, strict=True))

    def product(tap: str, row: str, side: str) -> VirtualRegister:
        weight, other = (k.number(name, FLOAT32) for name in (row, side))
        return k(vmulq_n_f32, k(vmulq_n_f32, taps[tap], weight), other)

    total = product(*_TAPS[0])
    for each in _TAPS[1:]:
        total = k(vaddq_f32, total, product(*each))
    return total


def _interpolate(dtype: DType, lane: int) -> tuple[Intrinsic, ...]:
    weight_dtype = FLOAT32 if dtype == FLOAT32 else INT32
    return element_intrinsics(
        f"mve_interpolate_{dtype.name}_{lane}",
        (
            *pointers(dtype, "w", y=1),
            *pointers(dtype, a=1, b=1, c=1, d=1),
            *inputs(weight_dtype, "up", "down", "to_left", "to_right"),
            *immediates("bits", "count"),
        ),
        partial(_element, dtype),
        "Interpolates `count` channels between four pixels.",
        "mvefp",
        helium_text(interpolation(dtype, lane)),
        lambda args: 6 - args[-1] * lane // -128 * 17,
        (KEEP_STORES,),
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
INTRINSICS = tuple(chain.from_iterable(starmap(_interpolate, _KINDS)))
SCHEDULES = (
    Schedule(
        "helium.resize_bilinear.channels",
        "resize_bilinear",
        frozenset({"mvefp"}),
        lambda op: (NO_CONFIG,) if sum_dtype(op) != INT64 else (),
        _build,
    ),
)
