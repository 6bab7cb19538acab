"""Intrinsics for every target; base/quant.py defines requantization in numpy."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base import quant
from firmwright.base.dtypes import INT32, INT64, UINT8, UINT16, Array
from firmwright.base.text_sections import read_sections
from firmwright.base.weight_code import HEADER_WORDS, decode_block
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    inputs,
    pointers,
    read_intrinsics,
)
from firmwright.ops.fixed_point import FIXED_POINT_INTRINSICS, two_over_one_plus
from firmwright.ops.float32_requantize import (
    REQUANTIZE_FLOAT32,
    REQUANTIZE_FOLDED_FLOAT32,
)
from firmwright.ops.float_sum_order import ADD_RUN
from firmwright.ops.gate_functions import GATE_FUNCTION_INTRINSICS
from firmwright.ops.libm_intrinsics import FLOAT_FUNCTIONS
from firmwright.ops.memory_sums import MEMORY_SUM_INTRINSICS
from firmwright.ops.storage_types import STORAGE_INTRINSICS


def bit_length(x: Array) -> Array:
    """Return the number of significant bits, exact for every x below 2^32.

    A float64 holds such an x exactly.
    """
    return np.frexp(np.asarray(x, np.float64))[1].astype(np.int32)


def rounded_square_root(x: Array) -> Array:
    """Return the square root rounded to nearest, limited to 16 bits if x fits in 32."""
    x = np.asarray(x, np.uint64)
    one = np.uint64(1)
    limit_32 = np.uint64(0xFFFFFFFF)
    root = np.minimum(np.sqrt(x.astype(np.float64)), float(limit_32)).astype(np.uint64)
    root = np.where(root * root > x, root - one, root)
    above = np.minimum(root, limit_32 - one) + one
    root = np.where(above * above <= x, above, root)
    limit = np.where(x >> np.uint64(32) == 0, np.uint64(0xFFFF), limit_32)
    is_up = (x - root * root > root) & (root != limit)
    return np.where(is_up, root + one, root).astype(np.uint32)


def _requantize(rounding: quant.Rounding) -> Callable[[Array, Array, Array], Array]:
    def run(x: Array, multiplier: Array, shift: Array) -> Array:
        scaled = quant.multiply_by_quantized_multiplier(x, multiplier, shift, rounding)
        return scaled.astype(np.int32)

    return run


def _requantize_doubled(x: Array, multiplier: Array, right: Array) -> Array:
    high_word = (np.asarray(x, np.int64) * multiplier + (1 << 31)) >> 32
    return quant.rounding_divide_by_pot(high_word, right).astype(np.int32)


FACTOR_LOW_BITS = 27


def leading_zeros(x: Array) -> Array:
    return 32 - bit_length(x)


def requantize_exact(x: Array, high: Array, low: Array, shift: Array) -> Array:
    size = np.asarray(abs(x), np.int64)
    right = np.asarray(shift, np.int64)
    upper = np.asarray(high, np.int64)
    lower = np.asarray(low, np.int64)
    total = size * upper + ((size * lower) >> FACTOR_LOW_BITS)
    rounded = (total + (np.int64(1) << (right - 1))) >> right
    result: Array = (np.sign(x) * rounded).astype(np.int32)
    return result


def reciprocal(total: Array, headroom: Array) -> Array:
    normal = (np.asarray(total, np.int64) << np.asarray(headroom, np.int64)) - (1 << 31)
    quotient = np.minimum(two_over_one_plus(normal) << 1, quant.INT32_MAX)
    result: Array = quotient.astype(np.int32)
    return result


def _power(x: int, exponent: int) -> int:
    """Return the power if it fits int32, else INT32_MIN, as LiteRT does on x86."""
    # Odd if the exponent is; 2 to the power of this overflows.
    enough = max(0, min(exponent, 32 + exponent % 2))
    exact = int(x) ** enough
    return exact if quant.INT32_MIN <= exact <= quant.INT32_MAX else quant.INT32_MIN


power = np.vectorize(_power, otypes=[np.int32])


def _low_power(x: int, exponent: int) -> int:
    """Return the low 32 bits of the power, 1 if the exponent is negative."""
    low = pow(int(x), max(0, int(exponent)), 1 << 32)
    return low - (1 << 32) if low > quant.INT32_MAX else low


low_power = np.vectorize(_low_power, otypes=[np.int32])


def _round(x: Array) -> Array:
    # In double, because adding a half in float32 could round up.
    size = np.floor(np.abs(np.asarray(x, np.float64)) + 0.5)
    return np.copysign(size, x).astype(np.float32)


def _nearest_int8(x: Array, offset: Array) -> Array:
    limited: Array = np.clip(_round(x) + offset, -128, 127).astype(np.int32)
    return limited


def _dynamic_ends(low: Array, high: Array) -> tuple[Array, Array]:
    return np.minimum(low, 0).astype(np.float64), np.maximum(high, 0).astype(np.float64)


def dynamic_scale(low: Array, high: Array) -> Array:
    least, greatest = _dynamic_ends(low, high)
    least = least.astype(np.float32)
    greatest = greatest.astype(np.float32)
    scale = (greatest - least) / np.float32(255)
    return np.where(least == greatest, np.float32(1), scale)


def dynamic_zero_point(low: Array, high: Array) -> Array:
    least, greatest = _dynamic_ends(low, high)
    scale = np.where(least == greatest, 1, (greatest - least) / 255)
    below = least / scale
    above = greatest / scale
    is_below = 128 + np.abs(below) < 127 + np.abs(above)
    point = np.where(is_below, -128 - below, 127 - above)
    rounded = np.sign(point) * np.floor(np.abs(point) + 0.5)
    clipped = np.clip(rounded, -128, 127)
    return np.where(least == greatest, 0, clipped).astype(np.int32)


def sift_down(entries: Array, first: Array, size: Array) -> Array:
    heap = np.array(entries)
    at = int(np.max(first))
    end = int(np.max(size))
    while 2 * at + 1 < end:
        below = heap[2 * at + 1 : min(2 * at + 3, end)]
        if not len(below) or below.max() <= heap[at]:
            break
        greater = 2 * at + 1 + int(below.argmax())
        heap[[at, greater]] = heap[[greater, at]]
        at = greater
    return heap


# ---- constants in memory that the core cannot address --------------------------------

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
CONSTANT_LOADS = frozenset(
    {CONST_LOAD.name, CONST_LOAD_START.name, CONST_LOAD_WAIT.name}
)

SIFT_DOWN = Intrinsic(
    name="sift_down",
    operands=(*pointers(INT64, "rw", entries=1), *inputs(INT32, "first", "size")),
    meaning=sift_down,
    portable=read_sections(__file__)["sift_down"],
    doc="Moves entry `first` of a heap of `size` entries below greater ones.",
    instructions=60,
)

COPY_8_WORDS = Intrinsic(
    name="copy_8_words",
    operands=(*pointers(INT32, "w", y=8), *pointers(INT32, x=8)),
    meaning=lambda y, x: x,
    portable=read_sections(__file__)["copy_8_words"],
    doc="Copies eight words that do not overlap.",
    requires="dsp",
    text={"gnu": read_sections(__file__)["copy_8_words_dsp"]},
    instructions=2,
)


def _decode_weights(dst: Array, coded: Array, block: Array, count: Array) -> Array:
    words = coded.reshape(len(coded), -1)[:, 0]
    size = int(count.flat[0])
    lanes = np.stack([decode_block(words, int(at), size) for at in block.flat], axis=-1)
    return np.concatenate([lanes.reshape(size, *dst.shape[1:]), dst[size:]])


DECODE_WEIGHTS = Intrinsic(
    name="decode_weights",
    operands=(
        replace(_DST, extent=1, times="count"),
        *pointers(UINT16, coded=HEADER_WORDS),
        *inputs(INT32, "block", "count"),
    ),
    meaning=_decode_weights,
    portable="",
    rare=read_sections(__file__)["decode_weights"],
    doc="Decodes a block of weights that have codes of three lengths.",
    count=lambda args: 20 * args[3],
)

BASE_INTRINSICS: Mapping[str, Intrinsic] = {
    **read_intrinsics(
        __file__,
        {
            "bit_length": bit_length,
            "bits_of_f32": lambda x: np.asarray(x, np.float32).view(np.int32),
            "bits_of_f64": lambda x: np.asarray(x, np.float64).view(np.int64),
            "clz": leading_zeros,
            "double_of_bits": lambda x: np.asarray(x, np.int64).view(np.float64),
            "dynamic_scale": dynamic_scale,
            "dynamic_zero_point": dynamic_zero_point,
            "exp2_below_f32": partial(np.exp2, dtype=np.float32),
            "exp_f32": partial(np.exp, dtype=np.float32),
            "float_of_bits": lambda x: np.asarray(x, np.int32).view(np.float32),
            "low_power_i32": low_power,
            "nearest_even": lambda x: np.rint(x).astype(np.int32),
            "nearest_int8": _nearest_int8,
            "nearest_root": rounded_square_root,
            "power_i32": power,
            "reciprocal": reciprocal,
            "requantize_exact": requantize_exact,
            "requantize_once": _requantize(quant.Rounding.ONCE),
            "requantize_doubled": _requantize_doubled,
            "requantize_twice": _requantize(quant.Rounding.TWICE),
            "round_f32": _round,
            "tanh_f32": partial(np.tanh, dtype=np.float32),
        },
    ),
    **FIXED_POINT_INTRINSICS,
    **GATE_FUNCTION_INTRINSICS,
    **FLOAT_FUNCTIONS,
    **MEMORY_SUM_INTRINSICS,
    **STORAGE_INTRINSICS,
    **{
        item.name: item
        for item in (
            REQUANTIZE_FLOAT32,
            REQUANTIZE_FOLDED_FLOAT32,
            ADD_RUN,
            COPY_8_WORDS,
            SIFT_DOWN,
            CONST_LOAD,
            CONST_LOAD_START,
            CONST_LOAD_WAIT,
            DECODE_WEIGHTS,
        )
    },
}
