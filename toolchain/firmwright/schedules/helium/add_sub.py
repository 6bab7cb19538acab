"""add, sub and mul on vectors of int32, four on Helium, also of rows and a tensor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import (
    Compute,
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.c_numbers import both, equal, greater, less, negative
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.elementwise_arithmetic import has_zero_scale, product_requantization
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, per_tensor_quant
from firmwright.ops.rescaled_sum import left_shift, linear_sum, rescaled_sum
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.strided_copy import lower_fill
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.im2col import fill_bytes

# Both inputs are rescaled to a common scale (ops/rescaled_sum.py): minus the zero
# point, times 2^20 (int16: 2^15), doubling high multiply, rounding right shift for the
# smaller scale. VQRDMULH and VRSHL implement these steps except that halves of negative
# numbers round away from zero: 1 is subtracted from negative values before a shift.
# Obligation: no left shift, so that every value fits 32 bits. The factors of a product
# are not rescaled.

OPERATORS = (("add", 1), ("sub", -1))
_TERMS = ("zero_a", "multiplier_a", "shift_a", "zero_b", "multiplier_b", "shift_b")
_ROW = 256
"""The most elements of a constant that is several times a row."""
_FILLED = 64
"""The most elements of a row that is filled with a single one."""
_LEAST_ROW = 8
"""The elements of a row for which vectors are worth a call."""
_OUTPUT = ("multiplier", "shift", "zero_point", "low", "high", "rounding", "count")


def _element(sign: int, left: int, **x: ArithExpr) -> ArithExpr:
    """Return the sum of `a` and `sign` times `b`, or without sign their product."""

    def term(name: str) -> ArithExpr:
        wide = x[name].cast(INT32) - x[f"zero_{name}"]
        if not sign:
            return wide
        factors = [x[f"multiplier_{name}"], x[f"shift_{name}"]]
        return call_intrinsic("requantize_twice", [wide * (1 << left), *factors], INT32)

    a, b = term("a"), term("b")
    total = a * b if not sign else a + b if sign > 0 else a - b
    scaled = [total, x["multiplier"], x["shift"]]
    moved = call_intrinsic("requantize_twice", scaled, INT32) + x["zero_point"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(x["a"].expr.dtype)


@dataclass(frozen=True, slots=True)
class SumRows:
    """The instructions of a sum on vectors of int32.

    Numbers in all lanes are operands of all but `combine`. `shift_amount` makes an
    operand of `shift_right`.
    """

    subtract: Instr
    shift_left: Instr
    scale: Instr
    add: Instr
    sign: Instr
    shift_right: Instr
    shift_amount: Callable[[VectorBuilder, VirtualRegister], VirtualRegister]

    def nudge(self, k: VectorBuilder, value: VirtualRegister) -> VirtualRegister:
        """Return one less where `value` is negative: its halves round up."""
        return k(self.add, value, k(self.sign, value, 31))

    def term(
        self, k: VectorBuilder, lanes: VirtualRegister, name: str, left: int | None
    ) -> VirtualRegister:
        """Return an input minus its zero point, and with `left` rescaled."""
        value = k.named(name, self.subtract, lanes, k.number(f"zero_{name[0]}"))
        if left is None:
            return value
        multiplier, shift = (
            k.number(f"multiplier_{name[0]}"),
            k.number(f"shift_{name[0]}"),
        )
        is_half = k(both, k(equal, multiplier, 1 << 30), k(equal, shift, 0))
        with k.when(is_half):
            k(self.shift_left, value, left - 1, into=value)
        with k.otherwise():
            k(self.scale, k(self.shift_left, value, left), multiplier, into=value)
        with k.when(k(less, shift, 0)):
            amount = self.shift_amount(k, shift)
            k(self.shift_right, self.nudge(k, value), amount, into=value)
        return value

    def total(
        self,
        k: VectorBuilder,
        inputs: Sequence[VirtualRegister],
        combine: Instr,
        left: int | None,
    ) -> VirtualRegister:
        """Return the scaled sum or product, before its last shift."""
        a, b = (
            self.term(k, x, n, left)
            for x, n in zip(inputs, ("a_term", "b_term"), strict=True)
        )
        total = k.named("total", self.scale, k(combine, a, b), k.number("multiplier"))
        rounds = k(greater, k.number("rounding"), 0)
        with k.when(k(both, rounds, k(less, k.number("shift"), 0))):
            k(self.add, total, k(self.sign, total, 31), into=total)
        return total


_ROWS = SumRows(
    mve.vsubq_n_s32,
    mve.vshlq_n_s32,
    mve.vqrdmulhq_n_s32,
    mve.vaddq_s32,
    mve.vshrq_n_s32,
    mve.vrshlq_n_s32,
    lambda k, shift: shift,
)


def sum_loop(dtype: DType, compute: Compute) -> ElementLoop:
    inputs = (PointerOperand("a", dtype), PointerOperand("b", dtype))
    return ElementLoop(inputs, PointerOperand("y", dtype, "w"), INT32, compute)


def vector_sum(sign: int, dtype: DType) -> ElementLoop:
    """Return the sum on vectors of int32; without sign, the product."""
    combine = {1: mve.vaddq_s32, -1: mve.vsubq_s32, 0: mve.vmulq_s32}[sign]

    def compute(k: VectorBuilder, inputs: Sequence[VirtualRegister]) -> VirtualRegister:
        total = _ROWS.total(k, inputs, combine, left_shift(dtype) if sign else None)
        scaled = k(mve.vrshlq_n_s32, total, k.number("shift"))
        k(mve.vqaddq_n_s32, scaled, k.number("zero_point"), into=total)
        vector_requantize.limit_lanes(k, total, dtype)
        return total

    return sum_loop(dtype, compute)


def _executed(args: Sequence[int], lanes: int, sign: int) -> int:
    fixed = 10
    if sign:
        shifts = (args[5], args[8])
        fixed = 16 + 2 * sum(shift < 0 for shift in shifts)
    return 10 + divide_up(args[-1], lanes) * (fixed + 2 * (args[-2] > 0))


def make_sum(
    name: str, sign: int, requires: str, text: str, lanes: int, dtype: DType = INT8
) -> tuple[Intrinsic, ...]:
    """Return the sum of an element, and that of all, `lanes` at once by the C `text`.

    `sign` is 1 for a sum, -1 for a difference and 0 for a product.
    """
    names = (*(_TERMS if sign else _TERMS[::3]), *_OUTPUT)
    return element_intrinsics(
        f"{requires}_{name}_{dtype.name}",
        (*pointers(dtype, a=1, b=1), *pointers(dtype, "w", y=1), *immediates(*names)),
        partial(_element, sign, left_shift(dtype)),
        f"Rescaled {name} of `count` elements.",
        requires,
        text,
        lambda args: _executed(args, lanes, sign),
        (KEEP_STORES,) if requires == "mve" else (),
    )


# Most sums of int8 are linear in the stored values, which takes half the instructions.


def _linear_element(**x: ArithExpr) -> ArithExpr:
    first = x["a"].cast(INT32) * x["factor_a"] + x["addend"]
    total = first + x["b"].cast(INT32) * x["factor_b"]
    return minimum(maximum(total >> x["shift"], x["low"]), x["high"]).cast(INT8)


def _linear_lanes(
    k: VectorBuilder, inputs: Sequence[VirtualRegister]
) -> VirtualRegister:
    a, b = inputs
    factors = k(mve.vdupq_n_s32, k.number("factor_a"))
    first = k(mve.vmlasq_n_s32, a, factors, k.number("addend"))
    total = k.named("total", mve.vmlaq_n_s32, first, b, k.number("factor_b"))
    k(mve.vshlq_r_s32, total, k(negative, k.number("shift")), into=total)
    vector_requantize.limit_lanes(k, total, INT8)
    return total


LINEAR_LOOP = sum_loop(INT8, _linear_lanes)
_LINEAR_SUM = "mve_linear_sum_int8"
_LINEAR = element_intrinsics(
    _LINEAR_SUM,
    (
        *pointers(INT8, a=1, b=1),
        *pointers(INT8, "w", y=1),
        *immediates("factor_a", "factor_b", "addend", "shift", "low", "high", "count"),
    ),
    _linear_element,
    "Linear sums of `count` elements.",
    "mve",
    helium_text(LINEAR_LOOP),
    lambda args: 12 + divide_up(args[-1], 4) * 9,
    (KEEP_STORES,),
)


def _sums() -> Iterator[Intrinsic]:
    for dtype in (INT8, INT16):
        for name, sign in (*OPERATORS, ("mul", 0)):
            text = helium_text(vector_sum(sign, dtype))
            yield from make_sum(name, sign, "mve", text, 4, dtype)


INTRINSICS = (*_sums(), *_LINEAR)


@dataclass(frozen=True, slots=True)
class RowsOfSum:
    """The rows of a sum: one of all elements, or several of which one input is each.

    `repeated` is the number of that input. A constant is `copies` times a row. An input
    that `fills` rows has one element for each, or only one.
    """

    count: int
    size: int
    repeated: int | None = None
    copies: int = 1
    fills: bool = False


def find_rows(op: OpCall) -> RowsOfSum | None:
    """Return the rows if both inputs have their elements in the order of the output."""
    shape, elements = op.output.shape, op.output.elements
    partial_inputs = [i for i in (0, 1) if op.input(i).elements != elements]
    if not partial_inputs:
        return RowsOfSum(1, elements)
    index = partial_inputs[0]
    size = op.input(index).elements
    is_constant = op.constant(index) is not None
    own = op.input(index).shape
    suffix = own[next((i for i, n in enumerate(own) if n > 1), len(own)) :]
    is_row = suffix == shape[len(shape) - len(suffix) :]
    if len(partial_inputs) > 1 or not (is_row or _fills_rows(op, index)):
        return None
    rows = elements // size
    if is_row and size > 1 and not is_constant:
        return RowsOfSum(rows, size, index) if size >= _LEAST_ROW else None
    if is_row:
        most = _ROW if is_constant else _FILLED
        fitting = [n for n in range(1, rows + 1) if rows % n == 0 and n * size <= most]
        copies = max(fitting, default=1)
        found = RowsOfSum(rows // copies, size * copies, index, copies, not is_constant)
    else:
        found = RowsOfSum(size, rows, index, fills=True)
    return found if is_constant or found.size >= _LEAST_ROW else None


def _fills_rows(op: OpCall, index: int) -> bool:
    """Return whether each element of a varying input belongs to a row of the output."""
    own, shape = op.input(index).shape, op.output.shape
    padded = (1,) * (len(shape) - len(own)) + own
    inner = next((i for i in range(len(shape), 0, -1) if padded[i - 1] > 1), 0)
    return op.constant(index) is None and padded[:inner] == shape[:inner]


def sum_configs(
    op: OpCall, dtypes: Sequence[DType] = (INT8,)
) -> Sequence[ScheduleConfig]:
    kinds = [op.input(0), op.input(1)]
    if any(k.dtype not in dtypes for k in kinds) or find_rows(op) is None:
        return ()
    if op.op == "mul" and has_zero_scale(op):
        return ()
    terms, output = _terms(op)
    fits = max([*terms[2::3], *output.shifts]) <= 0
    applies = fits and vector_requantize.supports_requantize(output)
    return (NO_CONFIG,) if applies else ()


def _terms(op: OpCall) -> tuple[list[int], Requantization]:
    """Return the values of `_TERMS`, and the output's requantization.

    Of products, the values are the zero points only.
    """
    if op.op == "mul":
        points = [per_tensor_quant(op.input(index)).zero_point for index in (0, 1)]
        return points, product_requantization(op)
    params = rescaled_sum(op)
    terms: list[int] = []
    for term in params.terms:
        terms += [term.zero_point, term.multiplier, term.shift]
    return terms, params.output


def build_sum(
    op: OpCall, config: ScheduleConfig, b: Kernel, family: str = "mve"
) -> None:
    rows = find_rows(op)
    assert rows is not None
    name, numbers = _micro_kernel(op, family)
    sources = [_row_source(op, b, rows, index) for index in (0, 1)]
    is_single = rows.fills and op.input(rows.repeated or 0).elements == 1
    if is_single:
        _fill_row(b, rows, sources, 0, family)
    with b.for_("i", rows.count) as i:
        if rows.fills and not is_single:
            _fill_row(b, rows, sources, i, family)
        places: list[tir.AccessPtr] = []
        for index, source in enumerate(sources):
            start = i * (0 if index == rows.repeated else rows.size)
            places.append(b.pointer(source, start, rows.size))
        y = b.pointer(b.y, i * rows.size, rows.size, "w")
        b.evaluate(name, [*places, y, *numbers, rows.size])


def _row_source(op: OpCall, b: Kernel, rows: RowsOfSum, index: int) -> tir.Buffer:
    """Return the input, the copies of a constant row, or a row to fill."""
    constant = op.constant(index)
    if index != rows.repeated:
        return b.input(index)
    if rows.fills:
        return b.allocate("row", op.output.dtype, (rows.size,))
    if constant is None:
        return b.input(index)
    copies = np.tile(constant.array().reshape(-1), rows.copies)
    return b.constant("row", copies, op.output.dtype)


def _fill_row(
    b: Kernel,
    rows: RowsOfSum,
    sources: Sequence[tir.Buffer],
    at: ArithExpr | int,
    family: str,
) -> None:
    """Fill a row with an element of the repeated input."""
    assert rows.repeated is not None
    x, row = b.input(rows.repeated), sources[rows.repeated]
    elements = b.view("elements", x, 0, (x.elements,))
    value = b.let("value", b.load_i32(elements, [at]))
    if family == "mve" and row.dtype == INT8:
        fill_bytes(b, row, 0, value, rows.size)
    else:
        lower_fill(b, row, value.cast(row.dtype))


def _micro_kernel(op: OpCall, family: str) -> tuple[str, list[int]]:
    """Return the name of the micro-kernel, and its operands besides `count`."""
    sign = dict(OPERATORS).get(op.op, 0)
    linear = linear_sum(op, sign) if family == "mve" and sign else None
    terms, output = _terms(op)
    zero, low, high, rounding, _ = vector_requantize.epilogue_settings(output, 4)
    if linear is not None:
        return _LINEAR_SUM, [linear.a, linear.b, linear.c, linear.shift, low, high]
    name = f"{family}_{op.op}_{op.output.dtype.name}"
    scale = [output.multipliers[0], output.shifts[0]]
    return name, [*terms, *scale, zero, low, high, rounding]


SCHEDULES = tuple(
    Schedule(
        f"helium.{name}.vectors",
        name,
        frozenset({"mve"}),
        partial(sum_configs, dtypes=(INT8, INT16)),
        build_sum,
    )
    for name in ("add", "sub", "mul")
)
