"""mul of int8 by one multiply-high for each element.

The only DSP instruction, SMMLA, is a multiply-high and an addition on cores without
SIMD.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.elementwise_arithmetic import has_zero_scale, product_requantization
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    fold_requantize,
)

# The schedule does not apply if the proof of the folded epilogue, with its left shift
# included in constants, fails.

_UNROLL = (4, 3, 5, 2)
_VALUES = np.arange(INT8.min, INT8.max + 1)


def _fold_product(op: OpCall) -> tuple[FoldedRequantize, list[Array | None]] | None:
    """Return the requantization of the product and the constants, scaled by 2^left."""
    if op.input(0).dtype != INT8 or has_zero_scale(op):
        return None
    first = _factor_values(op, 0)
    second = _factor_values(op, 1)
    bound = int(np.abs(first).max() * np.abs(second).max())
    params = product_requantization(op)
    folded = fold_requantize(params, np.array([-bound]), np.array([bound]))
    if folded is None:
        return None
    scaled: list[Array | None] = [None, None]
    for index, values in enumerate((first, second)):
        if op.constant(index) is not None:
            scaled[index] = values << folded.left[0]
    return folded, scaled


def _factor_values(op: OpCall, index: int) -> Array:
    """Return the elements of a constant factor or, if it varies, all possible ones."""
    constant = op.constant(index)
    stored = _VALUES if constant is None else constant.array().astype(np.int64)
    return np.asarray(stored - per_tensor_quant(op.input(index)).zero_point)


def _product_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if _fold_product(op) is not None else ()


def _build_product(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    fold = _fold_product(op)
    assert fold is not None
    folded, constants = fold
    scaled = [each for each in constants if each is not None]
    bound = max((int(np.abs(each).max()) for each in scaled), default=0)
    dtype = INT16 if bound <= INT16.max else INT32
    multiplier = ArithExpr(immediate(folded.multiplier[0], INT32))
    addend = ArithExpr(immediate(folded.addend[0], INT32))
    nudge = ArithExpr(immediate(folded.sign[0], INT32)) if folded.has_sign else None
    sources = [
        b.input(index) if value is None else b.constant("scaled", value, dtype)
        for index, value in enumerate(constants)
    ]
    with loop_over_elements(b, *_UNROLL, sources=sources) as (loaded, store):
        values: list[ArithExpr] = []
        for index, constant in enumerate(constants):
            if constant is None:
                zero_point = per_tensor_quant(op.input(index)).zero_point
                values.append(loaded[index].cast(INT32) - zero_point)
            elif constant.size > 1:
                values.append(loaded[index].cast(INT32))
            else:
                only = int(constant.reshape(-1)[0])
                values.append(ArithExpr(immediate(only, INT32)))
        right = values[1] if scaled else values[1] * (1 << folded.left[0])
        total = b.let("total", values[0] * right)
        y = apply_folded_requantize(
            folded, total, total, multiplier, addend, nudge, INT8
        )
        store(y)


SCHEDULES = tuple(
    Schedule(
        f"{feature}.mul.folded",
        "mul",
        frozenset({feature}),
        _product_configs,
        _build_product,
        disable_scheduling=True,
    )
    for feature in ("dsp", "mla", "rvm")
)
