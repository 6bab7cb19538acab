"""Operations on 32-bit numbers and pairs of them, for semantics of core registers."""

from functools import reduce

from firmwright.base.dtypes import (
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    DType,
)
from firmwright.ir.tir.builder import (
    ArithExpr,
    ExprLike,
    binary_expr,
    call_intrinsic,
    logical_and,
    maximum,
    minimum,
    select,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    join_halves,
    shift_left,
    shift_right,
)


def bit_xor(a: ArithExpr, b: ExprLike) -> ArithExpr:
    return binary_expr("xor", a, b)


def bit_not(a: ArithExpr) -> ArithExpr:
    """Return the inverted bits of a UINT32."""
    return bit_xor(a, 0xFFFFFFFF)


def unsigned_low(word: ArithExpr) -> ArithExpr:
    """Return the low half of a word as an unsigned number."""
    return word & constant(0xFFFF, UINT32)


def unsigned_high(word: ArithExpr) -> ArithExpr:
    """Return the high half of a word as an unsigned number."""
    return shift_right(word, 16)


def unsigned_bytes(word: ArithExpr) -> list[ArithExpr]:
    """Return the bytes of a word as unsigned numbers, lowest first."""
    return [shift_right(word, 8 * i).cast(UINT8).cast(UINT32) for i in range(4)]


def signed_bytes(word: ArithExpr) -> list[ArithExpr]:
    """Return the bytes of a word as signed numbers, lowest first."""
    return [shift_right(word, 8 * i).cast(INT8).cast(INT32) for i in range(4)]


def join_bytes(*values: ArithExpr) -> ArithExpr:
    """Return a word of the 8 low bits of four numbers, lowest first."""
    parts = [value.cast(UINT8).cast(UINT32) for value in values]
    return reduce(bit_or, [shift_left(part, 8 * i) for i, part in enumerate(parts)])


def add_halves(word: ArithExpr, low: ArithExpr, high: ArithExpr) -> ArithExpr:
    """Return the halves of a word plus two numbers, modulo 2^16."""
    lower = unsigned_low(word) + low.cast(UINT32)
    return join_halves(lower, unsigned_high(word) + high.cast(UINT32))


def saturate_to_bits(value: ArithExpr, bits: int, *, signed: bool) -> ArithExpr:
    """Return `value` limited to signed or unsigned numbers of `bits`."""
    low, high = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    )
    return minimum(maximum(value, low), high)


def saturated_sum(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the sum of two INT32, limited to INT32."""
    total = a.cast(INT64) + b.cast(INT64)
    return saturate_to_bits(total, 32, signed=True).cast(INT32)


def saturated_difference(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the difference of two INT32, limited to INT32."""
    total = a.cast(INT64) - b.cast(INT64)
    return saturate_to_bits(total, 32, signed=True).cast(INT32)


def product_bits(
    a: ArithExpr, b: ArithExpr, shift: int, rounding: int = 0
) -> ArithExpr:
    """Return (a * b + rounding) >> shift of two INT32 or UINT32, modulo 2^32."""
    wide = INT64 if a.expr.dtype == INT32 else UINT64
    product = a.cast(wide) * b.cast(wide)
    if rounding:
        product = product + rounding
    return shift_right(product, shift).cast(a.expr.dtype)


def low_word(value: ArithExpr) -> ArithExpr:
    return value.cast(UINT32)


def high_word(value: ArithExpr) -> ArithExpr:
    return shift_right(value.cast(UINT64), 32).cast(UINT32)


def join_words(low: ArithExpr, high: ArithExpr) -> ArithExpr:
    """Return two words as a UINT64."""
    return bit_or(low.cast(UINT64), shift_left(high.cast(UINT64), 32))


def sign_extend(value: ArithExpr, dtype: DType) -> ArithExpr:
    """Return the low bits of `value` as a number of `dtype`, extended to INT32."""
    return value.cast(dtype).cast(INT32)


def zero_extend(value: ArithExpr, dtype: DType) -> ArithExpr:
    """Return the low bits of `value` as a number of `dtype`, extended to UINT32."""
    return value.cast(dtype).cast(UINT32)


def bit_field(value: ArithExpr, low: int, width: int) -> ArithExpr:
    """Return `width` bits from bit `low` of a UINT32."""
    return shift_right(shift_left(value, 32 - width - low), 32 - width)


def signed_bit_field(value: ArithExpr, low: int, width: int) -> ArithExpr:
    """Return `width` bits from bit `low` of a UINT32 as a signed INT32."""
    top = shift_left(value, 32 - width - low)
    return shift_right(top.cast(INT32), 32 - width)


def insert_bits(word: ArithExpr, bits: ArithExpr, low: int, width: int) -> ArithExpr:
    """Return `word` with the lowest of `bits` in place of `width` bits from `low`."""
    mask = (1 << width) - 1
    kept = word & constant(0xFFFFFFFF ^ (mask << low), UINT32)
    return bit_or(kept, shift_left(bits & constant(mask, UINT32), low))


def rotate_right(value: ArithExpr, amount: int) -> ArithExpr:
    """Return a UINT32 rotated by 1 to 31 bits."""
    return bit_or(shift_right(value, amount), shift_left(value, 32 - amount))


def shift_by_register(op: str, value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    """Return `value` shifted by the low byte of `amount`, which may be large.

    `op` is `shl` or `shr`; the latter is arithmetic for INT32.
    """
    dtype = value.expr.dtype
    byte = (amount.cast(UINT32) & constant(0xFF, UINT32)).cast(dtype)
    limited = minimum(byte, 31)
    shifted = value << limited if op == "shl" else value >> limited
    if dtype == INT32:
        return shifted
    return select(byte > 31, constant(0, dtype), shifted)


def unsigned_immediate(value: int) -> ArithExpr:
    """Return the bits of a signed number as a UINT32."""
    return constant(value & 0xFFFFFFFF, UINT32)


def low_five_bits(value: ArithExpr) -> ArithExpr:
    """Return the amount of a shift as RISC-V takes it from a register."""
    return value & constant(31, value.expr.dtype)


def leading_zeros(value: ArithExpr) -> ArithExpr:
    """Return the leading zeros of a UINT32, 32 of zero."""
    return (constant(32, INT32) - _bit_length(value)).cast(UINT32)


def trailing_zeros(value: ArithExpr) -> ArithExpr:
    """Return the trailing zeros of a UINT32, 32 of zero."""
    lowest = value & (constant(0, UINT32) - value)
    zeros = _bit_length(lowest) - 1
    return select(value.equal(0), constant(32, INT32), zeros).cast(UINT32)


def _bit_length(value: ArithExpr) -> ArithExpr:
    return call_intrinsic("bit_length", [value], INT32)


def set_bits(value: ArithExpr) -> ArithExpr:
    """Return the number of bits that are set in a UINT32."""
    one = constant(1, UINT32)
    return reduce(lambda a, b: a + b, [shift_right(value, i) & one for i in range(32)])


def reverse_bytes(word: ArithExpr) -> ArithExpr:
    return join_bytes(*reversed(unsigned_bytes(word)))


def reverse_bits(word: ArithExpr) -> ArithExpr:
    one = constant(1, UINT32)
    bits = [shift_left(shift_right(word, i) & one, 31 - i) for i in range(32)]
    return reduce(bit_or, bits)


def divide(a: ArithExpr, b: ArithExpr, by_zero: int) -> ArithExpr:
    """Return a / b, truncated; `by_zero` if b is 0, and a if the quotient overflows."""
    quotient = a / _safe_divisor(a, b)
    return select(b.equal(0), constant(by_zero, a.expr.dtype), quotient)


def remainder(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a % b with the sign of a; a if b is zero, 0 if the quotient overflows."""
    return select(b.equal(0), a, a % _safe_divisor(a, b))


def _safe_divisor(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return 1 in place of a divisor that is zero or makes the quotient overflow."""
    one = constant(1, a.expr.dtype)
    nonzero = select(b.equal(0), one, b)
    if not a.expr.dtype.signed:
        return nonzero
    overflows = logical_and(a.equal(INT32.min), b.equal(-1))
    return select(overflows, one, nonzero)
