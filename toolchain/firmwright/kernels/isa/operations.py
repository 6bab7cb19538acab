"""What instructions of several tables compute, one definition for all of them.

The results depend on the types of operands, which a row states: a shift to the right is
arithmetic for INT32, and a byte of memory is extended as its type says.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from firmwright.base.dtypes import (
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from firmwright.ir.tir.builder import ArithExpr, ExprLike, select
from firmwright.kernels.isa.instruction import (
    Instr,
    InstructionSet,
    Lanes,
    Memory,
    RegisterClass,
    RegisterPlace,
    Semantics,
    Signature,
    signature,
)
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    high,
    join_halves,
    low,
    shift_right,
    wrap_difference,
    wrap_sum,
)
from firmwright.kernels.isa.vectors import each, repeat
from firmwright.kernels.isa.words import (
    bit_not,
    bit_xor,
    divide,
    high_word,
    join_bytes,
    join_words,
    low_five_bits,
    low_word,
    shift_by_register,
    sign_extend,
    signed_bytes,
    unsigned_bytes,
    unsigned_high,
    unsigned_immediate,
    unsigned_low,
    zero_extend,
)

Operation: TypeAlias = Callable[[ArithExpr, ArithExpr], ArithExpr]
Part: TypeAlias = Callable[[ArithExpr], ArithExpr]
"""A half of a word as a number."""


# ---- Loads and stores ----------------------------------------------------------------


def read(address: Lanes) -> ArithExpr:
    """Return the element, extended to 32 bits by its sign if it has one."""
    (element,) = address
    return element.cast(INT32 if element.expr.dtype.signed else UINT32)


def read_all(address: Lanes) -> Lanes:
    """Return the elements, lowest first."""
    return address


def write(a: ArithExpr) -> Lanes:
    """Write a word."""
    return (a,)


def write_all(*values: ArithExpr) -> Lanes:
    """Write words, the first at the lowest address."""
    return values


def write_half(a: ArithExpr) -> Lanes:
    """Write the low half."""
    return (a.cast(UINT16),)


def write_byte(a: ArithExpr) -> Lanes:
    """Write the lowest byte."""
    return (a.cast(UINT8),)


def load_row(
    table: InstructionSet, mnemonic: str, memory: object, result: object, name: str = ""
) -> Instr:
    """Add a load of one element."""
    operands = signature(result, address=memory)
    return table.row(f"{mnemonic} {{d}}, {{address}}", operands, read, name)


def store_row(
    table: InstructionSet, mnemonic: str, value: object, memory: object, name: str = ""
) -> Instr:
    """Add a store of the low bits of a register to one element."""
    operands = signature(memory, a=value)
    (element,) = (result.place for result in operands.results)
    assert isinstance(element, Memory)
    semantics = {32: write, 16: write_half, 8: write_byte}[element.dtype.bits]
    return table.row(f"{mnemonic} {{a}}, {{address}}", operands, semantics, name)


def multiple_load_row(
    table: InstructionSet, mnemonic: str, memory: object, register: object, name: str
) -> Instr:
    """Add a load of several registers."""
    count = _element_count(memory)
    operands = signature(
        register if count == 1 else (register,) * count, address=memory
    )
    words = [f"{{{result.name}}}" for result in operands.results]
    return table.row(_multiple(mnemonic, words), operands, read_all, name)


def multiple_store_row(
    table: InstructionSet, mnemonic: str, memory: object, register: object, name: str
) -> Instr:
    """Add a store of several registers."""
    names = "abcefghi"[: _element_count(memory)]
    operands = signature(memory, **dict.fromkeys(names, register))
    words = [f"{{{operand.name}}}" for operand in operands.operands]
    return table.row(_multiple(mnemonic, words), operands, write_all, name)


def _element_count(memory: object) -> int:
    (place,) = (result.place for result in signature(memory).results)
    assert isinstance(place, Memory)
    return place.count


def _multiple(mnemonic: str, registers: Sequence[str]) -> str:
    return f"{mnemonic} {{address}}, {{{{{', '.join(registers)}}}}}"


# ---- Moves, sums and quotients -------------------------------------------------------


def copy(a: ArithExpr) -> ArithExpr:
    """Return a copy."""
    return a


def int_number(value: int) -> ArithExpr:
    """Return a number."""
    return constant(value, INT32)


def word_number(value: int) -> ArithExpr:
    """Return a number that is not negative."""
    return constant(value, UINT32)


def add_number(a: ArithExpr, value: int) -> ArithExpr:
    """Return a + value modulo 2^32."""
    return wrap_sum(a, constant(value, INT32))


def subtract_number(a: ArithExpr, value: int) -> ArithExpr:
    """Return a - value modulo 2^32."""
    return wrap_difference(a, constant(value, INT32))


def negative(a: ArithExpr) -> ArithExpr:
    """Return -a modulo 2^32."""
    return wrap_difference(constant(0, INT32), a)


def wide_sum(
    a0: ArithExpr, a1: ArithExpr, b0: ArithExpr, b1: ArithExpr
) -> tuple[ArithExpr, ArithExpr]:
    """Return the sum of two numbers of 64 bits, each its low and its high word."""
    total = join_words(a0, a1) + join_words(b0, b1)
    return low_word(total), high_word(total)


def wide_difference(
    a0: ArithExpr, a1: ArithExpr, b0: ArithExpr, b1: ArithExpr
) -> tuple[ArithExpr, ArithExpr]:
    """Return the difference of two numbers of 64 bits, each its low and high word."""
    total = join_words(a0, a1) - join_words(b0, b1)
    return low_word(total), high_word(total)


def wide_product(a: ArithExpr, b: ArithExpr) -> tuple[ArithExpr, ArithExpr]:
    """Return the low and the high word of a * b."""
    product = _product(a, b)
    return low_word(product), high_word(product)


def add_wide_product(
    d0: ArithExpr, d1: ArithExpr, a: ArithExpr, b: ArithExpr
) -> tuple[ArithExpr, ArithExpr]:
    """Add a * b to the number of the words d0 (low) and d1, modulo 2^64."""
    total = join_words(d0, d1) + _product(a, b).cast(UINT64)
    return low_word(total), high_word(total)


def _product(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    wide = INT64 if a.expr.dtype.signed else UINT64
    return a.cast(wide) * b.cast(wide)


def divide_or_zero(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a / b, truncated; 0 if b is 0."""
    return divide(a, b, by_zero=0)


def is_less(a: ArithExpr, b: ExprLike) -> ArithExpr:
    """Return 1 if a < b, else 0."""
    return select(a < b, constant(1, INT32), constant(0, INT32))


# ---- Bits ----------------------------------------------------------------------------


def bit_clear(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the bits of a that are not set in b."""
    return a & bit_not(b)


def and_number(a: ArithExpr, mask: int) -> ArithExpr:
    """Return the bits of a that are set in `mask`, sign-extended."""
    return a & unsigned_immediate(mask)


def or_number(a: ArithExpr, mask: int) -> ArithExpr:
    """Return the bits that are set in a or `mask`, sign-extended."""
    return bit_or(a, unsigned_immediate(mask))


def xor_number(a: ArithExpr, mask: int) -> ArithExpr:
    """Return a with the bits of `mask`, sign-extended, inverted."""
    return bit_xor(a, unsigned_immediate(mask))


def shift_left_by_byte(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a << n for the lowest byte n of b; 0 from 32 bits on."""
    return shift_by_register("shl", a, b)


def shift_right_by_byte(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a >> n for the lowest byte n of b; from 32 bits on, 0 or the sign."""
    return shift_by_register("shr", a, b)


def shift_left_by_five_bits(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a << n for the five low bits n of b."""
    return a << low_five_bits(b)


def shift_right_by_five_bits(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a >> n for the five low bits n of b."""
    return a >> low_five_bits(b)


def sign_extend_byte(a: ArithExpr) -> ArithExpr:
    """Return the lowest byte, sign-extended."""
    return sign_extend(a, INT8)


def sign_extend_half(a: ArithExpr) -> ArithExpr:
    """Return the low half, sign-extended."""
    return sign_extend(a, INT16)


def zero_extend_byte(a: ArithExpr) -> ArithExpr:
    """Return the lowest byte, zero-extended."""
    return zero_extend(a, UINT8)


def zero_extend_half(a: ArithExpr) -> ArithExpr:
    """Return the low half, zero-extended."""
    return zero_extend(a, UINT16)


def shifted(
    function: Callable[[ArithExpr, ArithExpr], ArithExpr],
    shift: Callable[[ArithExpr, int], ArithExpr],
) -> Semantics:
    """Return `function` of a first operand and of a shifted second one."""

    def compute(a: ArithExpr, b: ArithExpr, n: int) -> ArithExpr:
        return function(a, shift(b, n))

    return compute


# ---- Halves and bytes of words -------------------------------------------------------


def product_of(first: Part, second: Part) -> Semantics:
    """Return the product of a half of each operand."""

    def compute(a: ArithExpr, b: ArithExpr) -> ArithExpr:
        return first(a) * second(b)

    return compute


def two_bytes(
    part: Callable[[ArithExpr, int], ArithExpr], lower: int, upper: int
) -> Semantics:
    """Return two bytes, the first is 0, extended to halves."""

    def compute(a: ArithExpr) -> ArithExpr:
        return join_halves(part(a, lower), part(a, upper))

    return compute


def _on_parts(
    split: Callable[[ArithExpr], list[ArithExpr]],
    join: Callable[..., ArithExpr],
    operation: Operation,
) -> Semantics:
    """Return `operation` of the halves or bytes of two words."""

    def compute(a: ArithExpr, b: ArithExpr) -> ArithExpr:
        pairs = zip(split(a), split(b), strict=True)
        return join(*(operation(x, y) for x, y in pairs))

    return compute


def _signed_halves(word: ArithExpr) -> list[ArithExpr]:
    return [low(word), high(word)]


def _unsigned_halves(word: ArithExpr) -> list[ArithExpr]:
    return [unsigned_low(word), unsigned_high(word)]


on_halves = partial(_on_parts, _signed_halves, join_halves)
on_unsigned_halves = partial(_on_parts, _unsigned_halves, join_halves)
on_bytes = partial(_on_parts, signed_bytes, join_bytes)
on_unsigned_bytes = partial(_on_parts, unsigned_bytes, join_bytes)


def half_sum(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    """Return half the sum, rounded down."""
    return shift_right(x + y, 1)


def half_difference(x: ArithExpr, y: ArithExpr) -> ArithExpr:
    """Return half of a difference, rounded down."""
    return shift_right(x - y, 1)


# ---- Vectors -------------------------------------------------------------------------


def lanewise(function: Callable[..., ArithExpr]) -> Semantics:
    """Return `function` of the lanes of vectors; a number counts for each lane.

    Of a number, the bits of a lane count.
    """

    def compute(*operands: Lanes | ArithExpr) -> Lanes:
        lanes = next(item for item in operands if isinstance(item, tuple))
        vectors = (_as_lanes(item, lanes) for item in operands)
        return each(function, *vectors)

    return compute


def _as_lanes(operand: Lanes | ArithExpr, like: Lanes) -> Lanes:
    if isinstance(operand, tuple):
        return operand
    dtype = like[0].expr.dtype
    is_wide = operand.expr.dtype.bits > dtype.bits
    return repeat(operand.cast(dtype) if is_wide else operand, len(like))


def vector_row(
    table: InstructionSet,
    mnemonic: str,
    intrinsic: str,
    operands: Signature,
    semantics: Semantics,
) -> Instr:
    """Add a row of Helium; `intrinsic` is the name of its C intrinsic.

    A number for all lanes is in a core register, of which C takes the low bits.
    """
    (vector,) = (result.place for result in operands.results)
    assert isinstance(vector, RegisterPlace)
    asm, c = ["{d}"], list[str]()
    for operand in operands.operands:
        assert isinstance(operand.place, RegisterPlace)
        is_number = operand.place.kind is RegisterClass.CORE
        is_narrow = is_number and vector.dtype.bits < operand.place.dtype.bits
        word = f"{{{operand.name}}}"
        asm.append(word)
        c.append(f"({vector.dtype.c_type})" * is_narrow + word)
    text = f"{mnemonic} {', '.join(dict.fromkeys(asm))}"
    return table.row(text, operands, semantics, c=f"{intrinsic}({', '.join(c)})")
