"""Groups of registers of RISC-V vectors, and functions of one lane; see `rvv.py`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from firmwright.base.dtypes import (
    INT8,
    INT16,
    INT32,
    INT64,
    UINT32,
    UINT64,
    DType,
)
from firmwright.ir.tir.builder import ArithExpr, binary_expr
from firmwright.kernels.isa.instruction import (
    Instr,
    InstructionSet,
    Lanes,
    Memory,
    RegisterClass,
    RegisterPlace,
    Semantics,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import constant, shift_right
from firmwright.kernels.isa.operations import lanewise
from firmwright.kernels.isa.vectors import add, rounding_shift_right, saturate_cast
from firmwright.targets.disassembly import AssemblySyntax

RVV = InstructionSet("rvv", frozenset({"rvv"}), syntax=AssemblySyntax.RISCV)
RVV_FLOAT = InstructionSet(
    "rvv_float", frozenset({"rvvf"}), RVV, syntax=AssemblySyntax.RISCV
)

_GROUPS = {64: "mf2", 128: "m1", 256: "m2", 512: "m4", 1024: "m8"}
"""Names of groups of registers of 128 bits, by the bits of all."""


def register_group(dtype: DType, lanes: int) -> str:
    """Return how the names of intrinsics call a group of registers, such as i32m8."""
    return f"{dtype.short}{_GROUPS[lanes * dtype.bits]}"


@dataclass(frozen=True, slots=True)
class Vectors:
    """Groups of registers of some lanes, whose rows are added to `table`."""

    lanes: int
    table: InstructionSet = RVV

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
        return self.table.instruction("", full, c=f"__riscv_{full}({operands})")

    def lane_row(
        self,
        name: str,
        function: Callable[..., ArithExpr],
        result: DType,
        *types: object,
        text: str = "{a}, {b}",
    ) -> None:
        """Add an intrinsic that computes `function` of each lane, of any length.

        `types` are those of the operands, in the order of `text`: the type of lanes, or
        of a number that counts for each lane.
        """
        lanes = lanewise(function)

        def compute(
            *operands: Lanes | ArithExpr,
        ) -> ArithExpr | tuple[object, ...]:
            *others, _ = operands
            return lanes(*others)

        names = re.findall(r"{(\w)}", text)
        places = (self.of(item) if isinstance(item, DType) else item for item in types)
        operands = dict(zip(names, places, strict=True))
        full = f"{name}_{self.group(result)}"
        places_of_row = signature(self.of(result), **operands, vl=Word)
        c = f"__riscv_{full}({text}, {{vl}})"
        self.table.row("", places_of_row, compute, full, c)


_ROUNDED, DOWN = "__RISCV_VXRM_RNU", "__RISCV_VXRM_RDN"
"""Rounds to nearest, halves up; rounds down."""
ROUNDED_TEXT = f"{{a}}, {{b}}, {_ROUNDED}"


def _shift_amount(amount: ArithExpr, bits: int) -> ArithExpr:
    """Return the low bits of a shift amount, those that count for values of `bits`."""
    return amount.cast(UINT32) & constant(bits - 1, UINT32)


def lane_shift_right(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    low = _shift_amount(amount, value.expr.dtype.bits).cast(value.expr.dtype)
    return binary_expr("shr", value, low)


def lane_shift_left(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    low = _shift_amount(amount, value.expr.dtype.bits)
    return binary_expr("shl", value.cast(UINT32), low).cast(value.expr.dtype)


def _rounded(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    low = _shift_amount(amount, value.expr.dtype.bits).cast(INT64)
    return rounding_shift_right(value.cast(INT64), low)


def rounded_lane(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    """Return value / 2^amount to nearest, halves up."""
    return _rounded(value, amount).cast(value.expr.dtype)


def as_half(value: ArithExpr) -> ArithExpr:
    return value.cast(INT16)


def as_int(value: ArithExpr) -> ArithExpr:
    return value.cast(INT32)


def add_product(total: ArithExpr, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return total + a * b modulo 2^32."""
    return add(total, a.cast(INT32) * b.cast(INT32))


def halved_sum(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return (a + b) / 2 of uint32, rounded down; the sum has 33 bits."""
    return shift_right(a.cast(UINT64) + b.cast(UINT64), 1).cast(UINT32)


def narrowed(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    """Return value / 2^amount in half the width: to nearest, halves up, saturated."""
    narrow = INT16 if value.expr.dtype == INT32 else INT8
    return saturate_cast(_rounded(value, amount), narrow)
