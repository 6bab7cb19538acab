"""Rows of RISC-V vectors for functions of elements, and for a search in a table."""

import operator
from typing import Annotated

from firmwright.base.dtypes import (
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    DType,
)
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.kernels.isa.instruction import (
    AddressForm,
    Int,
    Lanes,
    Memory,
    Word,
)
from firmwright.kernels.isa.lanes import bit_or, shift_right
from firmwright.kernels.isa.rvv_groups import (
    ROUNDED_TEXT,
    Vectors,
    as_int,
    lane_shift_left,
    lane_shift_right,
    narrowed,
    rounded_lane,
)
from firmwright.kernels.isa.vectors import (
    add,
    rounding_doubling_high_product,
    saturate_cast,
    saturating_add,
    subtract,
    wrapping,
)
from firmwright.kernels.isa.words import bit_xor

_NUMBER = "{a}, (int16_t){b}"


def _rounding_doubling_high_half(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return (2 a b + 2^15) >> 16 of int16; only -2^15 times itself saturates."""
    product = a.cast(INT32) * b.cast(INT16).cast(INT32)
    return saturate_cast(shift_right(product + (1 << 14), 15), INT16)


def _product(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return a.cast(INT32) * b.cast(INT32)


def _reversed(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return subtract(b.cast(a.expr.dtype), a)


def add_functions(some: Vectors, many: Vectors) -> None:
    """Add those of products in `some` lanes, of halves in `many`."""
    _add_halves(many)
    for v in (some, many):
        _add_words(v)
    add_gather(many, INT32)
    _add_interpolation(some)
    v = some
    v.lane_row("vwmul_vv", _product, INT32, INT16, INT16)
    v.lane_row("vssra_vx", rounded_lane, INT32, INT32, Word, text=ROUNDED_TEXT)
    scale = rounding_doubling_high_product
    v.lane_row("vsmul_vx", scale, INT32, INT32, Int, text=ROUNDED_TEXT)
    v.lane_row("vnclip_wx", narrowed, INT16, INT32, Word, text=ROUNDED_TEXT)


def _add_halves(v: Vectors) -> None:
    kinds = (INT16, INT16, INT16)
    scale = _rounding_doubling_high_half
    v.lane_row("vsmul_vv", scale, *kinds, text=ROUNDED_TEXT)
    number = _NUMBER + ROUNDED_TEXT.removeprefix("{a}, {b}")
    v.lane_row("vsmul_vx", scale, INT16, INT16, Int, text=number)
    v.lane_row("vssra_vx", rounded_lane, INT16, INT16, Word, text=ROUNDED_TEXT)
    v.lane_row("vsra_vx", lane_shift_right, INT16, INT16, Word)
    v.lane_row("vsll_vx", lane_shift_left, INT16, INT16, Word)
    for name, function in (
        ("vadd", add),
        ("vsub", subtract),
        ("vand", wrapping(operator.and_)),
        ("vxor", wrapping(bit_xor)),
        ("vor", wrapping(bit_or)),
    ):
        v.lane_row(f"{name}_vv", function, *kinds)
        v.lane_row(f"{name}_vx", function, INT16, INT16, Int, text=_NUMBER)
    v.lane_row("vrsub_vx", _reversed, INT16, INT16, Int, text=_NUMBER)
    v.lane_row("vmin_vv", minimum, *kinds)
    v.lane_row("vsadd_vv", saturating_add, *kinds)


def _as_word(value: ArithExpr) -> ArithExpr:
    return value.cast(UINT32)


def _saturating_subtract(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return saturate_cast(a.cast(INT64) - b.cast(INT64), a.expr.dtype)


def _add_words(v: Vectors) -> None:
    v.lane_row("vssub_vv", _saturating_subtract, INT32, INT32, INT32)
    for name, function in (
        ("vadd", add),
        ("vand", wrapping(operator.and_)),
    ):
        v.lane_row(f"{name}_vx", function, INT32, INT32, Int)
    v.lane_row("vxor_vv", wrapping(bit_xor), INT32, INT32, INT32)


def _add_interpolation(v: Vectors) -> None:
    """Add the other steps between two entries of a table of halves."""
    add_gather(v, UINT16)
    v.lane_row("vzext_vf2", _as_word, UINT32, UINT16, text="{a}")
    v.lane_row("vsext_vf2", as_int, INT32, INT16, text="{a}")
    v.lane_row("vsub_vv", subtract, INT32, INT32, INT32)
    v.lane_row("vmin_vx", minimum, INT32, INT32, Int)
    v.lane_row("vsll_vx", lane_shift_left, INT32, INT32, Word)


def add_lookup(v: Vectors) -> None:
    """Add the gather of bytes, of which the offsets are bytes, too."""
    add_gather(v, UINT8, UINT8)


def add_gather(v: Vectors, dtype: DType, offset: DType = UINT32) -> None:
    """Add the gather of elements, with offsets in bytes that have another type."""
    elements = Memory(dtype, v.lanes, range(1), form=AddressForm.LANES, index="offsets")

    @v.row(f"vluxei{offset.bits}_v", dtype, "{address}, {offsets}, {vl}")
    def gather(
        address: Annotated[Lanes, elements],
        offsets: Annotated[Lanes, v.of(offset)],
        vl: Word,
    ) -> Annotated[Lanes, v.of(dtype)]:
        """Return the elements at some bytes from the address."""
        return address
