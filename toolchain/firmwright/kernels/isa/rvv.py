"""RISC-V vectors (V 1.0) of 128 bits, as micro-kernels use them: from C.

The text of a row is its C intrinsic, because the compiler sets the type and the length
of vectors. Names are those of the intrinsics, without their prefix. Operands are groups
of registers: m8 is eight of them, mf2 half of one.

The operand `vl` is the number of lanes in use, at most those of the row. Lanes of
results from there on are unspecified, and elements of memory are not accessed.

Semantics: RISC-V "V" vector extension 1.0 and the C intrinsics of it.
"""

from typing import Annotated

from firmwright.base.dtypes import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    UINT32,
    DType,
)
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    Int,
    Lanes,
    Word,
)
from firmwright.kernels.isa.lanes import constant, high_product
from firmwright.kernels.isa.rvv_floats import add_floats
from firmwright.kernels.isa.rvv_functions import (
    add_functions,
    add_gather,
    add_lookup,
)
from firmwright.kernels.isa.rvv_groups import (
    DOWN,
    ROUNDED_TEXT,
    RVV,
    RVV_FLOAT,
    Vectors,
    add_product,
    as_half,
    as_int,
    halved_sum,
    lane_shift_left,
    lane_shift_right,
    narrowed,
    register_group,
    rounded_lane,
)
from firmwright.kernels.isa.vectors import (
    active,
    add,
    cast,
    each,
    first_lanes,
    high_half_of_product,
    multiply,
    products,
    repeat,
    rounding_doubling_high_product,
    saturating_add,
    subtract,
)

__all__ = ["RVV", "RVV_FLOAT", "register_group", "reinterpret", "riscv_row"]


def riscv_row(lanes: int, dtype: DType, name: str) -> Instr:
    """Return the instruction whose name ends with the group of some lanes."""
    table = RVV_FLOAT if dtype.is_float or name.startswith("vf") else RVV
    return table.rows[f"{name}_{register_group(dtype, lanes)}"]


def reinterpret(lanes: int, source: DType, target: DType) -> Instr:
    """Return the row that makes lanes of another type of the same bits."""
    groups = (register_group(dtype, lanes) for dtype in (source, target))
    table = RVV_FLOAT if target.is_float else RVV
    return table.rows[f"vreinterpret_v_{'_'.join(groups)}"]


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


def _load(v: Vectors, dtype: DType) -> None:
    @v.row(f"vle{dtype.bits}_v", dtype, "{address}, {vl}")
    def load(
        address: Annotated[Lanes, v.memory(dtype)], vl: Word
    ) -> Annotated[Lanes, v.of(dtype)]:
        """Return adjacent elements."""
        return address


def _store(v: Vectors, dtype: DType) -> None:
    @v.row(f"vse{dtype.bits}_v", dtype, "{address}, {a}, {vl}")
    def store(
        a: Annotated[Lanes, v.of(dtype)],
        vl: Word,
        address: Annotated[Lanes, v.memory(dtype)],
    ) -> Annotated[Lanes, v.memory(dtype)]:
        """Write adjacent elements."""
        return active(first_lanes(vl, v.lanes), a, address)


# ---- words: sums with their requantization -------------------------------------------


def _scale(v: Vectors) -> None:
    """Add the steps of every micro-kernel with its sums, in words."""
    v.lane_row("vadd_vv", add, INT32, INT32, INT32)
    v.lane_row("vsra_vx", lane_shift_right, INT32, INT32, Word)
    v.lane_row("vmulh_vv", high_product, INT32, INT32, INT32)
    v.lane_row(
        "vsmul_vv",
        rounding_doubling_high_product,
        INT32,
        INT32,
        INT32,
        text=ROUNDED_TEXT,
    )


def _narrow(v: Vectors) -> None:
    """Add the instructions that make bytes of scaled sums."""
    v.lane_row("vnclip_wv", narrowed, INT16, INT32, UINT16, text=ROUNDED_TEXT)
    _limit(v)


def _high_words(v: Vectors) -> None:
    """Add the steps of the high word of a product of 96 bits."""
    v.lane_row("vmul_vv", multiply, INT32, INT32, INT32)
    v.lane_row("vmul_vx", multiply, INT32, INT32, Int)
    text = f"{{a}}, {{b}}, {DOWN}"
    v.lane_row("vaaddu_vv", halved_sum, UINT32, UINT32, UINT32, text=text)
    v.lane_row("vsrl_vx", lane_shift_right, UINT32, UINT32, Word)
    for source, target in ((INT32, UINT32), (UINT32, INT32)):
        _reinterpret(v, source, target)


def _limit(v: Vectors) -> None:
    """Add the instructions that make bytes of halves."""
    v.lane_row("vsadd_vx", saturating_add, INT16, INT16, Int, text="{a}, (int16_t){b}")
    v.lane_row("vmax_vx", maximum, INT16, INT16, Int, text="{a}, (int16_t){b}")
    v.lane_row("vmin_vx", minimum, INT16, INT16, Int, text="{a}, (int16_t){b}")
    v.lane_row("vnclip_wx", narrowed, INT8, INT16, Word, text=ROUNDED_TEXT)


def _less_low_byte(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return a less the low byte of b."""
    return a.cast(INT16) - b.cast(INT8).cast(INT16)


def _multiply_accumulate(v: Vectors) -> None:
    """Add the products of bytes with a number for all lanes."""
    v.lane_row("vsext_vf2", as_half, INT16, INT8, text="{a}")
    number = "{a}, (int8_t){b}"
    v.lane_row("vwsub_vx", _less_low_byte, INT16, INT8, Int, text=number)

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


def _tensor_sums(v: Vectors) -> None:
    """Add the other instructions of sums of two tensors."""
    v.lane_row("vsext_vf4", as_int, INT32, INT8, text="{a}")
    v.lane_row("vsext_vf2", as_int, INT32, INT16, text="{a}")
    v.lane_row("vsub_vv", subtract, INT32, INT32, INT32)
    v.lane_row("vsub_vx", subtract, INT32, INT32, Int)
    v.lane_row("vsll_vx", lane_shift_left, INT32, INT32, Word)
    v.lane_row("vssra_vx", rounded_lane, INT32, INT32, Word, text=ROUNDED_TEXT)
    v.lane_row(
        "vsmul_vx",
        rounding_doubling_high_product,
        INT32,
        INT32,
        Int,
        text=ROUNDED_TEXT,
    )
    v.lane_row("vmulh_vx", high_product, INT32, INT32, Int)
    v.lane_row("vnclip_wx", narrowed, INT16, INT32, Word, text=ROUNDED_TEXT)


def _products_by_channel(v: Vectors) -> None:
    """Add the other instructions of products by channel."""
    v.lane_row(
        "vwmacc_vv", add_product, INT32, INT32, INT16, INT16, text="{d}, {a}, {b}"
    )
    v.lane_row("vwadd_wv", add, INT32, INT32, INT16)


# ---- halves and bytes ----------------------------------------------------------------


def _products_of_bytes(v: Vectors) -> None:
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

    half = Vectors(v.lanes // 2)
    name = f"vget_v_{v.group(INT16)}_{half.group(INT16)}"

    @RVV.instruction("", name, c=f"__riscv_{name}({{a}}, {{part}})")
    def vget(
        a: Annotated[Lanes, v.of(INT16)],
        part: Annotated[int, Immediate(range(2))],
    ) -> Annotated[Lanes, half.of(INT16)]:
        """Return the lower or upper half of the registers; no instruction."""
        return a[part * half.lanes : (part + 1) * half.lanes]


def _fill(v: Vectors, dtype: DType) -> None:
    @v.row("vmv_v_x", dtype, f"({dtype.c_type}){{a}}, {{vl}}")
    def vmv(a: Int, vl: Word) -> Annotated[Lanes, v.of(dtype)]:
        """Return the low bits of a in all lanes."""
        return repeat(a.cast(dtype), v.lanes)


def _means_of_bytes(v: Vectors) -> None:
    """Add sums of bytes in halves, and their quotients by a constant."""
    v.lane_row("vwadd_wv", add, INT16, INT16, INT8)
    v.lane_row("vadd_vv", add, INT16, INT16, INT16)
    v.lane_row("vsub_vx", subtract, INT16, INT16, Int, text="{a}, (int16_t){b}")
    v.lane_row("vsra_vx", lane_shift_right, INT16, INT16, Word)
    number = "{a}, (uint16_t){b}"
    v.lane_row("vmulhu_vx", high_half_of_product, UINT16, UINT16, Word, text=number)
    v.lane_row("vsrl_vx", lane_shift_right, UINT16, UINT16, Word)
    for source, target in ((INT16, UINT16), (UINT16, INT16)):
        _reinterpret(v, source, target)


def _means_of_halves(v: Vectors) -> None:
    """Add the other instructions of sums of halves in words, and of their quotients."""
    _fill(v, INT32)
    v.lane_row("vmulhu_vx", high_half_of_product, UINT32, UINT32, Word)


def _reinterpret(v: Vectors, source: DType, target: DType) -> None:
    name = f"vreinterpret_v_{v.group(source)}_{v.group(target)}"

    @RVV.instruction("", name, c=f"__riscv_{name}({{a}})")
    def vreinterpret(
        a: Annotated[Lanes, v.of(source)],
    ) -> Annotated[Lanes, v.of(target)]:
        """Return the same bits as another type; no instruction."""
        return cast(a, target)


for _lanes in (8, 16, 32):
    _group = Vectors(_lanes)
    _length(f"e32{_group.group(INT32)[3:]}", _lanes)
    for _dtype in (INT32, UINT16, INT16, INT8):
        _load(_group, _dtype)
    for _dtype in (INT32, INT16, INT8):
        _store(_group, _dtype)
    _scale(_group)
    _narrow(_group)
    _high_words(_group)
    _multiply_accumulate(_group)
add_functions(Vectors(16), Vectors(32))
for _dtype in (INT8, INT16):
    add_gather(Vectors(32), _dtype, UINT16)
_tensor_sums(Vectors(32))
_means_of_halves(Vectors(32))
_products_by_channel(Vectors(32))
_length("e16m8", 64)
_load(Vectors(64), INT8)
_products_of_bytes(Vectors(64))
_fill(Vectors(64), INT16)
_means_of_bytes(Vectors(64))
_limit(Vectors(64))
for _dtype in (INT16, INT8):
    _store(Vectors(64), _dtype)
_load(Vectors(64), INT16)
Vectors(64).lane_row("vmax_vv", maximum, INT16, INT16, INT16)
Vectors(64).lane_row("vmin_vv", minimum, INT16, INT16, INT16)
_length("e8m8", 128)
for _dtype in (INT8, UINT8):
    _load(Vectors(128), _dtype)
    _store(Vectors(128), _dtype)
add_lookup(Vectors(128))
_fill(Vectors(128), INT8)
Vectors(128).lane_row("vmax_vv", maximum, INT8, INT8, INT8)
Vectors(128).lane_row("vmin_vv", minimum, INT8, INT8, INT8)
for _lanes in (8, 16, 32):
    add_floats(Vectors(_lanes, RVV_FLOAT))
    add_gather(Vectors(_lanes, RVV_FLOAT), FLOAT32, UINT16)
