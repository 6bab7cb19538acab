"""add, sub and mul of tensors of equal shape on vectors of int32, four on Helium."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, Array, DType
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.elementwise_arithmetic import has_zero_scale, product_requantization
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, per_tensor_quant
from firmwright.ops.rescaled_sum import left_shift, rescaled_sum
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import vector_requantize

_C = read_sections(__file__)

# Both inputs are rescaled to a common scale (ops/rescaled_sum.py): minus the zero
# point, times 2^20 (int16: 2^15), doubling high multiply, rounding right shift for the
# smaller scale. VQRDMULH and VRSHL implement these steps except that halves of negative
# numbers round away from zero: 1 is subtracted from negative values before a shift.
# Obligation: no left shift, so that every value fits 32 bits. The factors of a product
# are not rescaled.

OPERATORS = (("add", 1), ("sub", -1))
_TERMS = ("zero_a", "multiplier_a", "shift_a", "zero_b", "multiplier_b", "shift_b")
_OUTPUT = ("multiplier", "shift", "zero_point", "low", "high", "rounding", "count")


def _meaning(
    sign: int, dtype: DType, a: Array, b: Array, y: Array, *rest: int
) -> Array:
    *terms, multiplier, shift, zero_point, low, high, _, count = rest

    def term(x: Array, zero: int, factor: int = 0, by: int = 0) -> Array:
        wide = np.asarray(x)[:count].astype(np.int64) - zero
        if not sign:
            return wide
        wide = wide << left_shift(dtype)
        return multiply_by_quantized_multiplier(wide, factor, by, Rounding.TWICE)

    half = len(terms) // 2
    left = term(a, *terms[:half])
    right = term(b, *terms[half:])
    total = left + sign * right if sign else left * right
    scaled = multiply_by_quantized_multiplier(total, multiplier, shift, Rounding.TWICE)
    return np.clip(scaled + zero_point, low, high).astype(dtype.np)


def _executed(args: Sequence[int], lanes: int, sign: int) -> int:
    fixed = 10
    if sign:
        shifts = (args[5], args[8])
        fixed = 16 + 2 * sum(shift < 0 for shift in shifts)
    return 10 + divide_up(args[-1], lanes) * (fixed + 2 * (args[-2] > 0))


def make_sum(
    name: str, sign: int, requires: str, text: str, lanes: int, dtype: DType = INT8
) -> Intrinsic:
    """Return the sum as an intrinsic of `lanes` lanes with the C `text`.

    `sign` is 1 for a sum, -1 for a difference and 0 for a product.
    """
    names = (*(_TERMS if sign else _TERMS[::3]), *_OUTPUT)
    portable = _C["portable" if sign else "product_portable"]
    values = {
        "sign": "+" if sign > 0 else "-",
        "left": left_shift(dtype),
        "type": dtype.c_type,
    }
    return Intrinsic(
        f"{requires}_{name}_{dtype.name}",
        (*pointers(dtype, a=1, b=1), *pointers(dtype, "w", y=1), *immediates(*names)),
        partial(_meaning, sign, dtype),
        fill_text(portable, **values),
        f"Rescaled {name} of `count` elements.",
        requires=requires,
        text={"gnu": text},
        count=lambda args: _executed(args, lanes, sign),
    )


def _text(name: str, sign: int, dtype: DType) -> str:
    left = left_shift(dtype)
    narrowed = vector_requantize.NARROWED[dtype]
    total = _C["sum" if sign else "product"]
    total = fill_text(total, sum=f"v{name}q_s32", left=left, less=left - 1)
    letter = "b" if dtype == INT8 else "h"
    limits = {"min": dtype.min, "max": dtype.max}
    return fill_text(
        _C["text"], total=indent(total, " " * 4), c=letter, narrowed=narrowed, **limits
    )


INTRINSICS = tuple(
    replace(
        make_sum(name, sign, "mve", _text(name, sign, dtype), 4, dtype),
        definitions=(KEEP_STORES,),
    )
    for dtype in (INT8, INT16)
    for name, sign in (*OPERATORS, ("mul", 0))
)


def sum_configs(
    op: OpCall, dtypes: Sequence[DType] = (INT8,)
) -> Sequence[ScheduleConfig]:
    kinds = [op.input(0), op.input(1)]
    if any(k.dtype not in dtypes or k.shape != op.output.shape for k in kinds):
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
    terms, output = _terms(op)
    count = op.output.elements
    zero, low, high, rounding, _ = vector_requantize.epilogue_settings(output, 4)
    b.evaluate(
        f"{family}_{op.op}_{op.output.dtype.name}",
        [
            b.pointer(b.input(0), 0, count),
            b.pointer(b.input(1), 0, count),
            b.pointer(b.y, 0, count, "w"),
            *terms,
            output.multipliers[0],
            output.shifts[0],
            zero,
            low,
            high,
            rounding,
            count,
        ],
    )


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
