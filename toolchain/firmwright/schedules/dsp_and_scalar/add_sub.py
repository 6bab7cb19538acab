"""add and sub by a lookup table and one multiply-high.

The only DSP instruction, SMMLA, is a multiply-high and an addition on cores without SIMD.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, Array
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.kernel import Kernel
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    fold_requantize,
)

# The input with the larger scale is rescaled by exactly one half, so its term is a shift. The term
# of the other input takes 256 values, stored in a table together with all constants. The folded
# epilogue follows, its left shift included in table and shift. The schedule does not apply if the
# proof fails, if a table entry exceeds 32 bits, or to constant or broadcast inputs.

_LIMIT = 1 << 30
_UNROLL = 4
_VALUES = np.arange(INT8.min, INT8.max + 1)


@dataclass(frozen=True, slots=True)
class _AddSubPlan:
    """Constants of (x[shifted] << shift) * sign + table[x[other] + 128], scaled by 2^left."""

    shifted: int
    shift: int
    sign: int
    table: Array
    folded: FoldedRequantize


def _plan(op: OpCall, sign: int) -> _AddSubPlan | None:
    """Return the constants, or None if a proof fails or neither term is a shift."""
    params = rescaled_sum(op)
    signs = (1, sign)
    terms = [s * term.apply(_VALUES) for s, term in zip(signs, params.terms, strict=True)]
    low, high = (sum(int(pick(term)) for term in terms) for pick in (np.min, np.max))
    folded = fold_requantize(params.output, np.array([low]), np.array([high]))
    if folded is None:
        return None
    for index in (0, 1):
        steps = np.diff(terms[index]) * signs[index]
        step = int(steps[0])
        if step > 0 and step & (step - 1) == 0 and bool((steps == step).all()):
            constant = int(terms[index][-INT8.min])  # the term at x = 0
            table = (terms[1 - index] + constant) << folded.left[0]
            shift = step.bit_length() - 1 + folded.left[0]
            if np.abs(table).max() < _LIMIT and 1 << shift + 7 <= _LIMIT:
                return _AddSubPlan(index, shift, signs[index], table, folded)
    return None


def _configs(op: OpCall, sign: int) -> Sequence[Config]:
    is_plain = op.input(0).dtype == INT8 and op.constants[0] is None and op.constants[1] is None
    same = op.input(0).shape == op.input(1).shape == op.output.shape
    return ({},) if is_plain and same and _plan(op, sign) is not None else ()


def _build(op: OpCall, config: Config, b: Kernel, sign: int) -> None:
    plan = _plan(op, sign)
    assert plan is not None
    elements = op.output.elements
    table = b.constant("table", np.roll(plan.table, INT8.min), INT32)  # indexed by unsigned bytes
    folded = plan.folded
    multiplier, addend = (
        ArithExpr(immediate(value[0], INT32)) for value in (folded.multiplier, folded.addend)
    )
    nudge = ArithExpr(immediate(folded.sign[0], INT32)) if folded.has_sign else None
    shifted_input, other_input = b.input(plan.shifted), b.input(1 - plan.shifted)
    shifted = b.view("flat", shifted_input, 0, (elements,))
    other = b.view("flat", other_input, 0, (elements,), dtype=UINT8)
    y = b.view("out", b.y, 0, (elements,), access="w")
    with b.unrolled("i", elements, _UNROLL) as at:
        index = b.load(other, [at]).cast(INDEX)
        scaled = b.load_i32(shifted, [at]) * (1 << plan.shift)
        table_term = b.load(table, [index])
        total = b.let("total", table_term + scaled if plan.sign > 0 else table_term - scaled)
        result = apply_folded_requantize(folded, total, total, multiplier, addend, nudge, INT8)
        b.store(y, [at], result)


SCHEDULES = tuple(
    Schedule(
        f"{feature}.{name}.table", name, frozenset({feature}), partial(_configs, sign=sign),
        partial(_build, sign=sign), disable_scheduling=True,
    )
    for feature in ("dsp", "mla", "rvm")
    for name, sign in (("add", 1), ("sub", -1))
)  # fmt: skip
