"""RISC-V vectors (V 1.0) of 128 bits, as micro-kernels use them: from C.

The text of a row is its C intrinsic, because the compiler sets the type and the length
of vectors. Names are those of the intrinsics, without their prefix. Operands are groups
of registers: m8 is eight of them, mf2 half of one.

The operand `vl` is the number of lanes in use, at most those of the row. Lanes of
results from there on are unspecified, and elements of memory are not accessed.

Semantics: RISC-V "V" vector extension 1.0 and the C intrinsics of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from firmwright.base.dtypes import (
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UINT32,
    DType,
)
from firmwright.ir.tir.builder import ArithExpr, binary_expr, maximum, minimum
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    InstructionSet,
    Int,
    Lanes,
    Memory,
    RegisterClass,
    RegisterPlace,
    Semantics,
    Word,
)
from firmwright.kernels.isa.lanes import constant, high_product
from firmwright.kernels.isa.vectors import (
    active,
    add,
    cast,
    each,
    first_lanes,
    products,
    repeat,
    rounding_doubling_high_product,
    rounding_shift_right,
    saturate_cast,
    saturating_add,
    subtract,
)

RVV = InstructionSet("rvv", frozenset({"rvv"}))

_GROUPS = {64: "mf2", 128: "m1", 256: "m2", 512: "m4", 1024: "m8"}
"""Names of groups of registers of 128 bits, by the bits of all."""


def register_group(dtype: DType, lanes: int) -> str:
    """Return how the names of intrinsics call a group of registers, such as i32m8."""
    return f"{dtype.short}{_GROUPS[lanes * dtype.bits]}"


def riscv_row(lanes: int, dtype: DType, name: str) -> Instr:
    """Return the instruction whose name ends with the group of some lanes."""
    return RVV.rows[f"{name}_{register_group(dtype, lanes)}"]


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Groups of registers of some lanes."""

    lanes: int

    def group(self, dtype: DType) -> str:
        return register_group(dtype, self.lanes)

    def of(self, dtype: DType) -> RegisterPlace:
        return RegisterPlace(RegisterClass.VECTOR, dtype, self.lanes)

    def memory(self, dtype: DType) -> Memory:
        return Memory(dtype, self.lanes, range(1))

    def row(
        self, name: str, dtype: DType, operands: str
    ) -> Callable[[Semantics], Instr]:
        """Add an intrinsic whose name ends with the group of `dtype`."""
        full = f"{name}_{self.group(dtype)}"
        return RVV.instruction("", full, c=f"__riscv_{full}({operands})")


_ROUNDED = "__RISCV_VXRM_RNU"
"""Rounds to nearest, halves up."""


def _shift_amount(amount: ArithExpr, bits: int) -> ArithExpr:
    """Return the low bits of a shift amount, those that count for values of `bits`."""
    return amount.cast(UINT32) & constant(bits - 1, UINT32)


def _shift_right(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    low = _shift_amount(amount, value.expr.dtype.bits).cast(value.expr.dtype)
    return binary_expr("shr", value, low)


def _shift_left(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    low = _shift_amount(amount, value.expr.dtype.bits)
    return binary_expr("shl", value.cast(UINT32), low).cast(value.expr.dtype)


def _rounded(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    low = _shift_amount(amount, value.expr.dtype.bits).cast(INT64)
    return rounding_shift_right(value.cast(INT64), low)


def _narrowed(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    """Return value / 2^amount in half the width: to nearest, halves up, saturated."""
    narrow = INT16 if value.expr.dtype == INT32 else INT8
    return saturate_cast(_rounded(value, amount), narrow)


# ---- lengths -------------------------------------------------------------------------


def _length(name: str, lanes: int) -> None:
    # Of more elements than a vector has, but less than twice as many, the architecture
    # also allows a smaller length.
    @RVV.instruction("", f"vsetvl_{name}", c=f"__riscv_vsetvl_{name}({{a}})")
    def length(a: Word) -> Word:
        """Return how many of `a` elements the next vector has."""
        return minimum(a, lanes)

    @RVV.instruction("", f"vsetvlmax_{name}", c=f"__riscv_vsetvlmax_{name}()")
    def most() -> Word:
        """Return how many elements a vector has."""
        return constant(lanes, UINT32)


# ---- loads and stores ----------------------------------------------------------------


def _load(v: _Vectors, dtype: DType) -> None:
    @v.row(f"vle{dtype.bits}_v", dtype, "{address}, {vl}")
    def load(
        address: Annotated[Lanes, v.memory(dtype)], vl: Word
    ) -> Annotated[Lanes, v.of(dtype)]:
        """Return adjacent elements."""
        return address


def _store(v: _Vectors, dtype: DType) -> None:
    @v.row(f"vse{dtype.bits}_v", dtype, "{address}, {a}, {vl}")
    def store(
        a: Annotated[Lanes, v.of(dtype)],
        vl: Word,
        address: Annotated[Lanes, v.memory(dtype)],
    ) -> Annotated[Lanes, v.memory(dtype)]:
        """Write adjacent elements."""
        return active(first_lanes(vl, v.lanes), a, address)


# ---- words: sums with their requantization -------------------------------------------


def _scale(v: _Vectors) -> None:
    """Add what every micro-kernel does with its sums, in words."""

    @v.row("vadd_vv", INT32, "{a}, {b}, {vl}")
    def vadd(
        a: Annotated[Lanes, v.of(INT32)], b: Annotated[Lanes, v.of(INT32)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a + b modulo 2^32."""
        return each(add, a, b)

    @v.row("vsra_vx", INT32, "{a}, {b}, {vl}")
    def vsra(
        a: Annotated[Lanes, v.of(INT32)], b: Word, vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a / 2^(b mod 32), rounded down."""
        return each(_shift_right, a, repeat(b, v.lanes))

    @v.row("vmulh_vv", INT32, "{a}, {b}, {vl}")
    def vmulh(
        a: Annotated[Lanes, v.of(INT32)], b: Annotated[Lanes, v.of(INT32)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return the high 32 bits of a * b."""
        return each(high_product, a, b)

    @v.row("vsmul_vv", INT32, f"{{a}}, {{b}}, {_ROUNDED}, {{vl}}")
    def vsmul(
        a: Annotated[Lanes, v.of(INT32)], b: Annotated[Lanes, v.of(INT32)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a b / 2^31 to nearest, halves up, saturated."""
        return each(rounding_doubling_high_product, a, b)


def _narrow(v: _Vectors) -> None:
    """Add the instructions that make bytes of scaled sums."""

    @v.row("vnclip_wv", INT16, f"{{a}}, {{b}}, {_ROUNDED}, {{vl}}")
    def vnclip(
        a: Annotated[Lanes, v.of(INT32)], b: Annotated[Lanes, v.of(UINT16)], vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return a / 2^(b mod 32) to nearest, halves up, saturated."""
        return each(_narrowed, a, b)

    @v.row("vsadd_vx", INT16, "{a}, (int16_t){b}, {vl}")
    def vsadd(
        a: Annotated[Lanes, v.of(INT16)], b: Int, vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return the sum of a and the low half of b, saturated."""
        return each(saturating_add, a, repeat(b.cast(INT16), v.lanes))

    @v.row("vmax_vx", INT16, "{a}, (int16_t){b}, {vl}")
    def vmax(
        a: Annotated[Lanes, v.of(INT16)], b: Int, vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return the larger of a and the low half of b."""
        return each(maximum, a, repeat(b.cast(INT16), v.lanes))

    @v.row("vmin_vx", INT16, "{a}, (int16_t){b}, {vl}")
    def vmin(
        a: Annotated[Lanes, v.of(INT16)], b: Int, vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return the smaller of a and the low half of b."""
        return each(minimum, a, repeat(b.cast(INT16), v.lanes))

    @v.row("vnclip_wx", INT8, f"{{a}}, {{b}}, {_ROUNDED}, {{vl}}")
    def vnclip_bytes(
        a: Annotated[Lanes, v.of(INT16)], b: Word, vl: Word
    ) -> Annotated[Lanes, v.of(INT8)]:
        """Return a / 2^(b mod 16) to nearest, halves up, saturated."""
        return each(_narrowed, a, repeat(b, v.lanes))


def _multiply_accumulate(v: _Vectors) -> None:
    """Add the products of bytes with a number for all lanes."""

    @v.row("vsext_vf2", INT16, "{a}, {vl}")
    def vsext(
        a: Annotated[Lanes, v.of(INT8)], vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return the bytes as halves."""
        return cast(a, INT16)

    @v.row("vwmacc_vx", INT32, "{d}, (int16_t){a}, {b}, {vl}")
    def vwmacc(
        d: Annotated[Lanes, v.of(INT32)],
        a: Int,
        b: Annotated[Lanes, v.of(INT16)],
        vl: Word,
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return d plus the product of b and the low half of a, modulo 2^32."""
        factor = repeat(a.cast(INT16), v.lanes)
        return each(add, d, products(factor, b, INT32))


def _tensor_sums(v: _Vectors) -> None:
    """Add what sums of two tensors need besides."""

    @v.row("vsext_vf4", INT32, "{a}, {vl}")
    def vsext(
        a: Annotated[Lanes, v.of(INT8)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return the bytes as words."""
        return cast(a, INT32)

    @v.row("vsub_vv", INT32, "{a}, {b}, {vl}")
    def vsub(
        a: Annotated[Lanes, v.of(INT32)], b: Annotated[Lanes, v.of(INT32)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a - b modulo 2^32."""
        return each(subtract, a, b)

    @v.row("vsub_vx", INT32, "{a}, {b}, {vl}")
    def vsub_number(
        a: Annotated[Lanes, v.of(INT32)], b: Int, vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a - b modulo 2^32."""
        return each(subtract, a, repeat(b, v.lanes))

    @v.row("vsll_vx", INT32, "{a}, {b}, {vl}")
    def vsll(
        a: Annotated[Lanes, v.of(INT32)], b: Word, vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a * 2^(b mod 32) modulo 2^32."""
        return each(_shift_left, a, repeat(b, v.lanes))

    @v.row("vssra_vx", INT32, f"{{a}}, {{b}}, {_ROUNDED}, {{vl}}")
    def vssra(
        a: Annotated[Lanes, v.of(INT32)], b: Word, vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a / 2^(b mod 32) to nearest, halves up."""
        return cast(each(_rounded, a, repeat(b, v.lanes)), INT32)

    @v.row("vsmul_vx", INT32, f"{{a}}, {{b}}, {_ROUNDED}, {{vl}}")
    def vsmul(
        a: Annotated[Lanes, v.of(INT32)], b: Int, vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a b / 2^31 to nearest, halves up, saturated."""
        return each(rounding_doubling_high_product, a, repeat(b, v.lanes))

    @v.row("vnclip_wx", INT16, f"{{a}}, {{b}}, {_ROUNDED}, {{vl}}")
    def vnclip(
        a: Annotated[Lanes, v.of(INT32)], b: Word, vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return a / 2^(b mod 32) to nearest, halves up, saturated."""
        return each(_narrowed, a, repeat(b, v.lanes))


def _products_by_channel(v: _Vectors) -> None:
    """Add what products by channel need besides."""

    @v.row("vwmacc_vv", INT32, "{d}, {a}, {b}, {vl}")
    def vwmacc(
        d: Annotated[Lanes, v.of(INT32)],
        a: Annotated[Lanes, v.of(INT16)],
        b: Annotated[Lanes, v.of(INT16)],
        vl: Word,
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return d + a * b modulo 2^32."""
        return each(add, d, products(a, b, INT32))

    @v.row("vwadd_wv", INT32, "{a}, {b}, {vl}")
    def vwadd(
        a: Annotated[Lanes, v.of(INT32)], b: Annotated[Lanes, v.of(INT16)], vl: Word
    ) -> Annotated[Lanes, v.of(INT32)]:
        """Return a + b modulo 2^32."""
        return each(add, a, cast(b, INT32))


# ---- halves and bytes ----------------------------------------------------------------


def _products_of_bytes(v: _Vectors) -> None:
    """Add products of bytes that are summed in halves."""

    @v.row("vwmul_vx", INT16, "{a}, (int8_t){b}, {vl}")
    def vwmul(
        a: Annotated[Lanes, v.of(INT8)], b: Int, vl: Word
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return the product of a and the low byte of b."""
        return products(a, repeat(b.cast(INT8), v.lanes), INT16)

    @v.row("vwmacc_vx", INT16, "{d}, (int8_t){a}, {b}, {vl}")
    def vwmacc(
        d: Annotated[Lanes, v.of(INT16)],
        a: Int,
        b: Annotated[Lanes, v.of(INT8)],
        vl: Word,
    ) -> Annotated[Lanes, v.of(INT16)]:
        """Return d plus the product of b and the low byte of a, modulo 2^16."""
        factor = repeat(a.cast(INT8), v.lanes)
        return each(add, d, products(factor, b, INT16))

    half = _Vectors(v.lanes // 2)
    name = f"vget_v_{v.group(INT16)}_{half.group(INT16)}"

    @RVV.instruction("", name, c=f"__riscv_{name}({{a}}, {{part}})")
    def vget(
        a: Annotated[Lanes, v.of(INT16)],
        part: Annotated[int, Immediate(range(2))],
    ) -> Annotated[Lanes, half.of(INT16)]:
        """Return the lower or upper half of the registers; no instruction."""
        return a[part * half.lanes : (part + 1) * half.lanes]


def _fill(v: _Vectors) -> None:
    @v.row("vmv_v_x", INT8, "(int8_t){a}, {vl}")
    def vmv(a: Int, vl: Word) -> Annotated[Lanes, v.of(INT8)]:
        """Return the low byte of a in all lanes."""
        return repeat(a.cast(INT8), v.lanes)


for _lanes in (8, 16, 32):
    _group = _Vectors(_lanes)
    _length(f"e32{_group.group(INT32)[3:]}", _lanes)
    for _dtype in (INT32, UINT16, INT8):
        _load(_group, _dtype)
    _store(_group, INT8)
    _scale(_group)
    _narrow(_group)
    _multiply_accumulate(_group)
_tensor_sums(_Vectors(32))
_products_by_channel(_Vectors(32))
_length("e16m8", 64)
_load(_Vectors(64), INT8)
_products_of_bytes(_Vectors(64))
_length("e8m8", 128)
_load(_Vectors(128), INT8)
_store(_Vectors(128), INT8)
_fill(_Vectors(128))
