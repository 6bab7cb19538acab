"""Conversions between storage types and the types that compute their numbers.

A float is rounded to the nearest number of the type, halves to even. Beyond the range
it becomes infinity, or NaN if the type has none; float4_e2m1fn saturates, and
float8_e8m0fnu is rounded up to a power of two. Integers keep their low bits. Semantics:
ONNX's Cast with saturate=0, and the numpy types of ml_dtypes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import (
    BFLOAT16,
    FLOAT4_E2M1FN,
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FNUZ,
    FLOAT8_E5M2,
    FLOAT8_E5M2FNUZ,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    INT2,
    INT4,
    STORAGE_DTYPES,
    UINT2,
    UINT4,
    Array,
    DType,
)
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, inputs

_C = read_sections(__file__)
_MANTISSA_BITS = 23
_BIAS = 127


def intrinsic_from(dtype: DType) -> str:
    """Return the name of the intrinsic that reads numbers of a storage type."""
    return f"from_{dtype.name}"


def intrinsic_to(dtype: DType) -> str:
    """Return the name of the intrinsic that makes numbers of a storage type."""
    return f"to_{dtype.name}"


def convert(x: Array, dtype: DType) -> Array:
    """Return numbers in another type, of which one or both are storage types."""
    return _to(dtype, x) if dtype.computed_as else np.asarray(x).astype(dtype.np)


def convert_expr(value: ArithExpr, dtype: DType) -> ArithExpr:
    """Return an expression in another type, of which both may be storage types."""
    own = value.expr.dtype
    if own == dtype:
        return value
    if own.computed_as:
        value = call_intrinsic(intrinsic_from(own), [value], own.computed)
    number = value.cast(dtype.computed)
    if not dtype.computed_as:
        return number
    return call_intrinsic(intrinsic_to(dtype), [number], dtype)


@dataclass(frozen=True, slots=True)
class _FloatFormat:
    """A float of `sign_bit` bits below its sign, of which `mantissa` are the mantissa.

    `bias` is that of its exponent. `special` is the C condition of codes without a
    finite value, with their float32 bits, of a code `x` with the magnitude `size`.
    `nan` is the code of NaN, `code` the C text of the code of a rounded magnitude,
    which may be beyond the range.
    """

    sign_bit: int
    mantissa: int
    bias: int
    special: tuple[str, str]
    nan: str
    code: str

    def decoder(self) -> str:
        shift = _MANTISSA_BITS - self.mantissa
        condition, bits = self.special
        special = ""
        if condition:
            special = fill_text(_C["special"], condition=condition, bits=bits)
        text = fill_text(
            _C["from_float"],
            size_mask=_hex((1 << self.sign_bit) - 1),
            sign_bit=self.sign_bit,
            special=special,
            mantissa=self.mantissa,
            least=f"{np.float32(2.0 ** (1 - self.bias - self.mantissa))}f",
            shift=shift,
            rebias=_hex((_BIAS - self.bias) << _MANTISSA_BITS),
        )
        return text.replace("\n\n", "\n")

    def encoder(self, dtype: DType) -> str:
        shift = _MANTISSA_BITS - self.mantissa
        return fill_text(
            _C["to_float"],
            sign_bit=self.sign_bit,
            type=dtype.c_type,
            nan=self.nan,
            shift=shift,
            rebias=_hex((_BIAS - self.bias) << self.mantissa),
            normal=_hex((_BIAS + 1 - self.bias) << _MANTISSA_BITS),
            deepest=f"{_BIAS + 1 + shift - self.bias}u",
            result=self.code,
        )


def _hex(value: int) -> str:
    return f"{value:#x}u"


def _with_infinity(sign_bit: int, mantissa: int, bias: int) -> _FloatFormat:
    infinity = (1 << sign_bit) - (1 << mantissa)
    text, quiet = _hex(infinity), _hex(infinity | 1 << (mantissa - 1))
    shift = _MANTISSA_BITS - mantissa
    return _FloatFormat(
        sign_bit,
        mantissa,
        bias,
        (f"size >= {text}", f"sign | 0x7f800000 | (size << {shift})"),
        f"sign | {quiet}",
        f"sign | (code > {text} ? {text} : code)",
    )


def _without_negative_zero(mantissa: int, bias: int) -> _FloatFormat:
    return _FloatFormat(
        7,
        mantissa,
        bias,
        ("x == 0x80u", "0x7fc00000"),
        "0x80u",
        "code > 0x7fu ? 0x80u : (code == 0u ? 0u : sign | code)",
    )


_FLOATS: Mapping[DType, _FloatFormat] = {
    FLOAT16: _with_infinity(15, 10, 15),
    FLOAT8_E5M2: _with_infinity(7, 2, 15),
    FLOAT8_E5M2FNUZ: _without_negative_zero(2, 16),
    FLOAT8_E4M3FNUZ: _without_negative_zero(3, 8),
    FLOAT8_E4M3FN: _FloatFormat(
        7,
        3,
        7,
        ("size == 0x7fu", "sign | 0x7fc00000"),
        "sign | 0x7fu",
        "sign | (code > 0x7eu ? 0x7fu : code)",
    ),
    FLOAT4_E2M1FN: _FloatFormat(
        3, 1, 1, ("", ""), "sign ^ 0x8u", "sign | (code > 0x7u ? 0x7u : code)"
    ),
}
_INTEGERS = (INT4, UINT4, INT2, UINT2)


def _decoder(dtype: DType) -> str:
    if dtype in _FLOATS:
        return _FLOATS[dtype].decoder()
    if dtype in _INTEGERS:
        return _integer_text("from", dtype)
    return _C["from_bfloat16" if dtype is BFLOAT16 else "from_exponent"]


def _encoder(dtype: DType) -> str:
    if dtype in _FLOATS:
        return _FLOATS[dtype].encoder(dtype)
    if dtype in _INTEGERS:
        return _integer_text("to", dtype)
    return _C["to_bfloat16" if dtype is BFLOAT16 else "to_exponent"]


def _integer_text(direction: str, dtype: DType) -> str:
    """Return C text that extends the low bits; numpy's arrays have zeros above them."""
    mask = dtype.max - dtype.min
    text = _C[f"{direction}_{'signed' if dtype.signed else 'unsigned'}"]
    return fill_text(text, mask=mask, sign=(mask + 1) // 2)


def _from(dtype: DType, x: Array) -> Array:
    return np.asarray(x, dtype.np).astype(dtype.computed.np)


def _to(dtype: DType, x: Array) -> Array:
    """Return numbers in a storage type."""
    numbers = np.asarray(x).astype(dtype.computed.np)
    if dtype is FLOAT8_E8M0FNU:
        return _powers_of_two(numbers)
    if dtype in _INTEGERS:
        low_bits = (numbers - dtype.min) & (dtype.max - dtype.min)
        return np.asarray((low_bits + dtype.min).astype(dtype.np))
    return numbers.astype(dtype.np)


def _powers_of_two(x: Array) -> Array:
    """Return float32 numbers as codes of powers of two, rounded up; others are NaN."""
    codes = (x.view(np.uint32) + np.uint32(0x007FFFFF)) >> np.uint32(_MANTISSA_BITS)
    least, most = np.float32(2.0**-_BIAS), np.float32(2.0**_BIAS)
    fits = (x >= least) & (x <= most)
    near = np.where(x > least, codes, 0)
    return np.where(fits, near, 255).astype(np.uint8).view(FLOAT8_E8M0FNU.np)


def _intrinsics(dtype: DType) -> tuple[Intrinsic, Intrinsic]:
    computed = dtype.computed
    is_float = computed == FLOAT32
    return (
        Intrinsic(
            name=intrinsic_from(dtype),
            operands=inputs(dtype, "x"),
            result=computed,
            meaning=partial(_from, dtype),
            portable=_decoder(dtype),
            doc=f"A number of {dtype.name}.",
            instructions=12 if is_float else 3,
        ),
        Intrinsic(
            name=intrinsic_to(dtype),
            operands=inputs(computed, "x"),
            result=dtype,
            meaning=partial(_to, dtype),
            portable=_encoder(dtype),
            doc=f"x as {dtype.name}.",
            instructions=16 if is_float else 3,
        ),
    )


STORAGE_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item for dtype in STORAGE_DTYPES for item in _intrinsics(dtype)
}
