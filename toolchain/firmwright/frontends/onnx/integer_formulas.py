"""Formulas of floats as integers, as ONNX Runtime converts them."""

from firmwright.base.dtypes import UINT32, UINT64, DType

_UINT64_TRUNCATION = (
    "low = a < 9223372036854775808.0; "
    "rest = where(a < 18446744073709551616.0, a - 9223372036854775808.0, 0.0); "
    "whole = uint64(int64(where(low, max(a, -9223372036854775808.0), rest))); "
    "where(low, whole, whole + 9223372036854775808)"
)
_NEAREST = (
    "cut = where(a < 0.0, ceil(a), floor(a)); "
    "beyond = where(a < 0.0, cut - 1.0, cut + 1.0); "
    "near = where(abs(a - cut) < 0.5, cut, beyond)"
)


def truncation(dtype: DType) -> str:
    """Return the formula of a float as an integer, as x86 and ONNX Runtime convert.

    The low bits of a signed word of 32 or 64 bits are kept. Floats that do not fit the
    word, and NaN, give its least integer. uint64 has the floats below 2^64, too.
    """
    if dtype == UINT64:
        return _UINT64_TRUNCATION
    bits = 64 if dtype.bits == 64 or dtype == UINT32 else 32
    end = 2.0 ** (bits - 1)
    whole = f"int{bits}(where(a < {end!r}, max(a, {-end!r}), {-end!r}))"
    return whole if dtype.name == f"int{bits}" else f"{dtype.name}({whole})"


def rounding(dtype: DType) -> str:
    """Return the formula of a float as a stored integer, as ONNX Runtime converts.

    Halves are rounded away from zero, and the low bits of an int32 are kept.
    """
    end = 2.0**31
    whole = f"int32(where(near < {end!r}, max(near, {-end!r}), {-end!r}))"
    return f"{_NEAREST}; {dtype.name}({whole})"
