"""Intrinsics available on every target; base/quant.py defines requantization in numpy."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from firmwright.base import quant
from firmwright.base.dtypes import FLOAT32, INT32, INT64, UINT8, UINT32, UINT64
from firmwright.base.text_sections import read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs
from firmwright.ops.fixed_point import FIXED_POINT_INTRINSICS, two_over_one_plus
from firmwright.ops.float32_requantize import REQUANTIZE_FLOAT32, REQUANTIZE_FOLDED_FLOAT32
from firmwright.ops.float_sum_order import ADD_RUN
from firmwright.ops.libm_intrinsics import FLOAT_FUNCTIONS

_C = read_sections(__file__)


def bit_length(x: Any) -> Any:
    """Return the number of significant bits; exact, since every x below 2^32 is a float64."""
    return np.frexp(np.asarray(x, np.float64))[1].astype(np.int32)


BIT_LENGTH = Intrinsic(
    name="bit_length",
    operands=inputs(UINT32, "x"),
    result=INT32,
    meaning=bit_length,
    portable=_C["bit_length_portable"],
    doc="The number of significant bits of x.",
    instructions=24,
)


def rounded_square_root(x: Any) -> Any:
    """Return the square root rounded to nearest, limited to 16 bits if x fits in 32."""
    x = np.asarray(x, np.uint64)
    one, limit_32 = np.uint64(1), np.uint64(0xFFFFFFFF)
    root = np.minimum(np.sqrt(x.astype(np.float64)), float(limit_32)).astype(np.uint64)
    root = np.where(root * root > x, root - one, root)
    above = np.minimum(root, limit_32 - one) + one
    root = np.where(above * above <= x, above, root)
    limit = np.where(x >> np.uint64(32) == 0, np.uint64(0xFFFF), limit_32)
    is_up = (x - root * root > root) & (root != limit)
    return np.where(is_up, root + one, root).astype(np.uint32)


NEAREST_ROOT = Intrinsic(
    name="nearest_root",
    operands=inputs(UINT64, "x"),
    result=UINT32,
    meaning=rounded_square_root,
    portable=_C["nearest_root_portable"],
    doc="The rounded square root of x, limited to 16 bits if x has 32.",
    instructions=300,
)

SIGNAL_INTRINSICS: Mapping[str, Intrinsic] = {i.name: i for i in (BIT_LENGTH, NEAREST_ROOT)}


def _requantize(rounding: quant.Rounding) -> Callable[[Any, Any, Any], Any]:
    return lambda x, multiplier, shift: quant.multiply_by_quantized_multiplier(
        x, multiplier, shift, rounding
    ).astype(np.int32)


REQUANTIZE_ONCE = Intrinsic(
    name="requantize_once",
    operands=inputs(INT32, "x", "multiplier", "shift"),
    result=INT32,
    meaning=_requantize(quant.Rounding.ONCE),
    portable="""\
const int32_t right = 31 - shift;
const int64_t half = (int64_t)1 << (right - 1);
return (int32_t)(((int64_t)x * multiplier + half) >> right);""",
    doc="x * multiplier * 2^(shift - 31), rounded once.",
    instructions=8,
)

REQUANTIZE_TWICE = Intrinsic(
    name="requantize_twice",
    operands=inputs(INT32, "x", "multiplier", "shift"),
    result=INT32,
    meaning=_requantize(quant.Rounding.TWICE),
    portable=_C["requantize_twice_portable"],
    doc="x * multiplier * 2^(shift - 31): doubling high multiply, then rounding shift.",
    instructions=12,
)

FACTOR_LOW_BITS = 27


def _exact(x: Any, high: Any, low: Any, shift: Any) -> Any:
    size, upper, lower, right = (np.asarray(v, np.int64) for v in (abs(x), high, low, shift))
    total = size * upper + ((size * lower) >> FACTOR_LOW_BITS)
    return (np.sign(x) * ((total + (np.int64(1) << (right - 1))) >> right)).astype(np.int32)


REQUANTIZE_EXACT = Intrinsic(
    name="requantize_exact",
    operands=(*inputs(INT64, "x"), *inputs(INT32, "high", "low", "right")),
    result=INT32,
    meaning=_exact,
    portable=_C["requantize_exact_portable"],
    doc="x * (high * 2^27 + low) / 2^(right + 27), halves away from zero.",
    instructions=24,
)


CLZ = Intrinsic(
    name="clz",
    operands=inputs(INT32, "x"),
    result=INT32,
    meaning=lambda x: 32 - bit_length(x),
    portable=_C["clz_portable"],
    doc="Leading zero bits of a positive x.",
    instructions=60,
)


def _reciprocal(total: Any, headroom: Any) -> Any:
    normal = (np.asarray(total, np.int64) << np.asarray(headroom, np.int64)) - (1 << 31)
    return np.minimum(two_over_one_plus(normal) << 1, quant.INT32_MAX).astype(np.int32)


RECIPROCAL = Intrinsic(
    name="reciprocal",
    operands=inputs(INT32, "total", "headroom"),
    result=INT32,
    meaning=_reciprocal,
    portable=_C["reciprocal_portable"],
    doc="1 / (total << headroom) with 0 integer bits, by Newton's method.",
    instructions=40,
)


def _power(x: Any, exponent: Any) -> Any:
    base, bits = (np.asarray(v, np.int64) for v in np.broadcast_arrays(x, exponent))
    result, bits = np.ones_like(base), np.maximum(bits, 0)
    while bits.any():
        result = np.where(bits & 1, result * base & 0xFFFFFFFF, result)
        base, bits = base * base & 0xFFFFFFFF, bits >> 1
    return result.astype(np.uint32).astype(np.int32)


POWER_I32 = Intrinsic(
    name="power_i32",
    operands=inputs(INT32, "x", "exponent"),
    result=INT32,
    meaning=_power,
    portable=_C["power_i32_portable"],
    doc="x to the power of exponent, its low 32 bits; 1 where exponent is negative.",
    instructions=60,
)


def _round(x: Any) -> Any:
    # In double, because adding a half in float32 could round up.
    return np.copysign(np.floor(np.abs(np.asarray(x, np.float64)) + 0.5), x).astype(np.float32)


EXP_F32, TANH_F32, ROUND_F32 = (
    Intrinsic(
        name=f"{name}_f32",
        operands=inputs(FLOAT32, "x"),
        result=FLOAT32,
        meaning=meaning,
        portable=f"return {name}f(x);",
        doc=doc,
        instructions=40,
        requires="fpu" if name == "exp" else "",
        text={"gnu": _C["exp_with_fpu"]} if name == "exp" else {},
    )
    for name, meaning, doc in (
        ("exp", partial(np.exp, dtype=np.float32), "The exponential of x."),
        ("tanh", partial(np.tanh, dtype=np.float32), "The hyperbolic tangent of x."),
        ("round", _round, "The nearest integer, halves away from zero."),
    )
)

EXP2_BELOW_F32 = Intrinsic(
    name="exp2_below_f32",
    operands=inputs(FLOAT32, "x"),
    result=FLOAT32,
    meaning=partial(np.exp2, dtype=np.float32),
    # 2^x = 2^n 2^r with n = round(x), found by an addition that rounds, and a polynomial of r.
    portable=_C["exp2_below_f32_portable"],
    doc="2 to the power of x <= 0, to within two units in the last place; at least 2^-127.",
    instructions=24,
)

FLOAT_OF_BITS = Intrinsic(
    name="float_of_bits",
    operands=inputs(INT32, "x"),
    result=FLOAT32,
    meaning=lambda x: np.asarray(x, np.int32).view(np.float32),
    portable=_C["float_of_bits_portable"],
    doc="The float32 with the bits x.",
)


NEAREST_EVEN = Intrinsic(
    name="nearest_even",
    operands=inputs(FLOAT32, "x"),
    result=INT32,
    meaning=lambda x: np.rint(x).astype(np.int32),
    # The sum has no bits below 1, so the addition rounds.
    portable=_C["nearest_even_portable"],
    doc="The nearest integer of |x| <= 2^21, halves to even.",
    instructions=3,
)

NEAREST_INT8 = Intrinsic(
    name="nearest_int8",
    operands=(*inputs(FLOAT32, "x"), *inputs(INT32, "offset")),
    result=INT32,
    meaning=lambda x, offset: np.clip(_round(x) + offset, -128, 127).astype(np.int32),
    portable=_C["nearest_int8_portable"],
    doc="The nearest integer, halves away from zero, plus an int8, saturated; for |x| below 2^29.",
    requires="fpu",
    text={"gnu": _C["nearest_int8_gnu"]},
    instructions=6,
)


def _dynamic_ends(low: Any, high: Any) -> tuple[Any, Any]:
    return np.minimum(low, 0).astype(np.float64), np.maximum(high, 0).astype(np.float64)


def _dynamic_scale(low: Any, high: Any) -> Any:
    least, greatest = (end.astype(np.float32) for end in _dynamic_ends(low, high))
    return np.where(least == greatest, np.float32(1), (greatest - least) / np.float32(255))


def _dynamic_zero_point(low: Any, high: Any) -> Any:
    least, greatest = _dynamic_ends(low, high)
    scale = np.where(least == greatest, 1, (greatest - least) / 255)
    below, above = least / scale, greatest / scale
    point = np.where(128 + np.abs(below) < 127 + np.abs(above), -128 - below, 127 - above)
    rounded = np.sign(point) * np.floor(np.abs(point) + 0.5)
    clipped = np.clip(rounded, -128, 127)
    return np.where(least == greatest, 0, clipped).astype(np.int32)


DYNAMIC_SCALE = Intrinsic(
    name="dynamic_scale",
    operands=inputs(FLOAT32, "low", "high"),
    result=FLOAT32,
    meaning=_dynamic_scale,
    portable="""\
const float least = low < 0.0f ? low : 0.0f;
const float greatest = high > 0.0f ? high : 0.0f;
return greatest > least ? (greatest - least) / 255.0f : 1.0f;""",
    doc="Scale of int8 values that span [low, high] and 0.",
    instructions=300,
)

DYNAMIC_ZERO_POINT = Intrinsic(
    name="dynamic_zero_point",
    operands=inputs(FLOAT32, "low", "high"),
    result=INT32,
    meaning=_dynamic_zero_point,
    portable=_C["dynamic_zero_point_portable"],
    doc="Zero point of int8 values that span [low, high] and 0; exact at the end with less error.",
    instructions=900,
)

# ---- constants in memory that the core cannot address ------------------------------------------

_DST = Operand("dst", "ptr", UINT8, "w")
_SRC = Operand("src", "ptr", UINT8, "r")


def _constant_load(name: str, operands: tuple[Operand, ...], doc: str) -> Intrinsic:
    return Intrinsic(
        name=name,
        operands=operands,
        meaning=lambda *pointers: pointers[-1],
        portable="#error only the AOT main loads constants",
        doc=doc,
    )


CONST_LOAD = _constant_load(
    "const_load", (_DST, _SRC), "Reads constants into RAM by the user's function."
)
CONST_LOAD_START = _constant_load(
    "const_load_start",
    (_DST, _SRC),
    "Starts reading constants into RAM; they are valid after const_load_wait.",
)
CONST_LOAD_WAIT = _constant_load(
    "const_load_wait",
    (Operand("dst", "ptr", UINT8, "rw"),),
    "Waits for the read started by const_load_start.",
)
CONSTANT_LOADS = frozenset({CONST_LOAD.name, CONST_LOAD_START.name, CONST_LOAD_WAIT.name})

BASE_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item
    for item in (
        REQUANTIZE_ONCE, REQUANTIZE_TWICE, REQUANTIZE_FLOAT32, REQUANTIZE_FOLDED_FLOAT32,
        REQUANTIZE_EXACT, ADD_RUN, CLZ, RECIPROCAL, POWER_I32, *FIXED_POINT_INTRINSICS,
        EXP2_BELOW_F32, EXP_F32, TANH_F32, ROUND_F32,
        FLOAT_OF_BITS, NEAREST_EVEN, NEAREST_INT8, DYNAMIC_SCALE, DYNAMIC_ZERO_POINT, CONST_LOAD,
        CONST_LOAD_START, CONST_LOAD_WAIT, *FLOAT_FUNCTIONS.values(), *SIGNAL_INTRINSICS.values(),
    )
}  # fmt: skip
