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
    points = [per_tensor_quant(op.input(index)).zero_point for index in (0, 1)]
    constants = [op.constant(index) for index in (0, 1)]
    factors = [
        (_VALUES if constant is None else constant.array().astype(np.int64)) - point
        for constant, point in zip(constants, points, strict=True)
    ]
    bound = int(np.abs(factors[0]).max() * np.abs(factors[1]).max())
    params = product_requantization(op)
    folded = fold_requantize(params, np.array([-bound]), np.array([bound]))
    if folded is None:
        return None
    return folded, [
        None if constant is None else factor << folded.left[0]
        for constant, factor in zip(constants, factors, strict=True)
    ]


def _product_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if _fold_product(op) is not None else ()


def _build_product(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    fold = _fold_product(op)
    assert fold is not None
    folded, constants = fold
    bound = max(
        (int(np.abs(each).max()) for each in constants if each is not None), default=0
    )
    dtype = INT16 if bound <= INT16.max else INT32
    multiplier, addend = (
        ArithExpr(immediate(value[0], INT32))
        for value in (folded.multiplier, folded.addend)
    )
    nudge = ArithExpr(immediate(folded.sign[0], INT32)) if folded.has_sign else None
    sources = [
        b.input(index) if value is None else b.constant("scaled", value, dtype)
        for index, value in enumerate(constants)
    ]
    with loop_over_elements(b, *_UNROLL, sources=sources) as (loaded, store):
        values = [
            value.cast(INT32) - per_tensor_quant(op.input(index)).zero_point
            if constant is None
            else value.cast(INT32)
            if constant.size > 1
            else ArithExpr(immediate(int(constant.reshape(-1)[0]), INT32))
            for index, (value, constant) in enumerate(
                zip(loaded, constants, strict=True)
            )
        ]
        is_scaled = any(constant is not None for constant in constants)
        right = values[1] if is_scaled else values[1] * (1 << folded.left[0])
        total = b.let("total", values[0] * right)
        store(
            apply_folded_requantize(
                folded, total, total, multiplier, addend, nudge, INT8
            )
        )


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
