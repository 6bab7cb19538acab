"""quantize of float32 to int8 on Helium, and dequantize.

The quotient by the scale is computed without a division. With r = 1 / scale to nearest,
q = x r is off by at most an ulp or two, and the exact remainder x - q scale corrects it
to the quotient to nearest (P. Markstein, 1990):

    q  = x r
    q' = q + r (x - q scale)              two VFMA, each rounded once

The result rises with x, so a schedule is offered if q' and the quotient agree on both
sides of each of the 255 bounds. Limits keep infinities and NaN as the operator has
them: q is at most 512 before its correction, and q' at least -512, which NaN becomes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa import mve, mve_float
from firmwright.kernels.isa.mve_lanes import narrow_words_twice_in_place
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import fused_multiply_add
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules import float_elements
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.scalar.quantize_search import floats_of_order, least_floats

_FAR = 512.0
"""Beyond every int8, with any zero point."""
_SCALES = 2.0**-80, 2.0**80
"""Vectors flush numbers below 2^-126 to 0, as which no remainder may count."""


def _lanes(k: VectorBuilder, values: Sequence[VirtualRegister]) -> VirtualRegister:
    (x,) = values
    far = k(mve_float.vdupq_n_f32, k.number("far", FLOAT32))
    least = k(mve_float.vdupq_n_f32, k.number("least", FLOAT32))
    product = k(mve_float.vmulq_n_f32, x, k.number("inverse", FLOAT32))
    near = k.named("near", mve_float.vminnmq_f32, product, far)
    minus_scale = k.number("minus_scale", FLOAT32)
    rest = k.named("rest", mve_float.vfmaq_n_f32, x, near, minus_scale)
    exact = k(mve_float.vfmaq_n_f32, near, rest, k.number("inverse", FLOAT32))
    limited = k(mve_float.vmaxnmq_f32, exact, least)
    nearest = k.named("nearest", mve_float.vcvtaq_s32_f32, limited)
    k(mve.vqaddq_n_s32, nearest, k.number("zero_point"), into=nearest)
    return k(narrow_words_twice_in_place, nearest, into=nearest)


QUANTIZE_LOOP = ElementLoop(
    (PointerOperand("x", FLOAT32),), PointerOperand("y", INT8, "w"), INT32, _lanes
)


def _element(**x: ArithExpr) -> ArithExpr:
    scaled = [x["x"] / x["scale"], x["zero_point"]]
    return call_intrinsic("nearest_int8", scaled, INT32).cast(INT8)


_NUMBERS = ("scale", "minus_scale", "inverse", "least", "far")
_NAME = "mve_quantize_exactly_f32"
_QUANTIZE = element_intrinsics(
    _NAME,
    (
        *pointers(INT8, "w", y=1),
        *pointers(FLOAT32, x=1),
        *inputs(FLOAT32, *_NUMBERS),
        *immediates("zero_point", "count"),
    ),
    _element,
    "Quantizes `count` elements.",
    "mvefp",
    helium_text(QUANTIZE_LOOP),
    lambda args: 14 + divide_up(args[-1], 4) * 12,
    (KEEP_STORES,),
)


def _inverse(scale: np.float32) -> np.float32:
    """Return 1 / scale to nearest: the quotient of doubles is never halfway."""
    return np.float32(1.0 / np.float64(scale))


def corrected_quotients(x: Array, scale: np.float32) -> Array:
    """Return the quotients of numbers as the vectors compute them."""
    inverse = _inverse(scale)
    near = np.minimum(x * inverse, np.float32(_FAR))
    rest = fused_multiply_add(near, np.asarray(-scale), x)
    return fused_multiply_add(np.asarray(inverse), rest, near)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != FLOAT32 or op.output.dtype != INT8:
        return ()
    scale = np.float32(per_tensor_quant(op.output).scale)
    if not _SCALES[0] <= scale <= _SCALES[1]:
        return ()
    bounds = least_floats(op)
    order = np.concatenate([bounds, bounds - 1])
    x = floats_of_order(order)
    x = x[np.abs(x / scale) < _FAR]
    is_exact = np.array_equal(corrected_quotients(x, scale), x / scale)
    return (NO_CONFIG,) if is_exact else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    quant, count = per_tensor_quant(op.output), op.output.elements
    scale = np.float32(quant.scale)
    numbers = [float(scale), -float(scale), float(_inverse(scale)), -_FAR, _FAR]
    ends = [b.pointer(b.y, 0, count, "w"), b.pointer(b.input(0), 0, count)]
    constants = [immediate(number, FLOAT32) for number in numbers]
    b.evaluate(_NAME, [*ends, *constants, quant.zero_point, count])


# ---- dequantize ----------------------------------------------------------------------

_INTEGERS = (INT8, INT16)
_LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""With a smaller scale, results may be subnormal numbers, which vectors flush to 0."""


def _dequantize(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    zero_point = k(mve.vdupq_n_s32, k.number("zero_point"))
    steps = k(mve.vsubq_s32, lanes[0], zero_point)
    whole = k(mve_float.vcvtq_f32_s32, steps)
    return k(mve_float.vmulq_n_f32, whole, k.number("scale", FLOAT32))


def dequantize_loop(dtype: DType) -> ElementLoop:
    x, y = PointerOperand("x", dtype), PointerOperand("y", FLOAT32, "w")
    return ElementLoop((x,), y, INT32, _dequantize)


def dequantize_name(dtype: DType) -> str:
    """Return the name of the micro-kernel for elements of `dtype`."""
    return f"mve_dequantize_{dtype.name}"


def _intrinsics() -> Iterator[Intrinsic]:
    yield from _QUANTIZE
    for dtype in (*_INTEGERS, INT32):
        yield from element_intrinsics(
            dequantize_name(dtype),
            float_elements.dequantize_operands(dtype),
            float_elements.dequantize,
            "Floats of `count` elements.",
            "mvefp",
            helium_text(dequantize_loop(dtype)),
            lambda args: 12 + divide_up(args[-1], 4) * 6,
            (KEEP_STORES,),
        )


def _dequantize_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_integer = op.input(0).dtype in _INTEGERS
    fits = is_integer and per_tensor_quant(op.input(0)).scale >= _LEAST_SCALE
    return (NO_CONFIG,) if fits else ()


def _build_dequantize(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    float_elements.build_dequantize(dequantize_name(op.input(0).dtype), op, b)


INTRINSICS = tuple(_intrinsics())
SCHEDULES = (
    Schedule(
        "helium.quantize.floats",
        "quantize",
        frozenset({"mve", "mvefp"}),
        _configs,
        _build,
    ),
    Schedule(
        "helium.dequantize.floats",
        "dequantize",
        frozenset({"mve", "mvefp"}),
        _dequantize_configs,
        _build_dequantize,
    ),
)
