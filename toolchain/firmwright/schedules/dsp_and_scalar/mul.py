"""mul of int8 by one multiply-high for each element.

The only DSP instruction, SMMLA, is a multiply-high and an addition on cores without
SIMD.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.elementwise_arithmetic import has_zero_scale, product_requantization
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.channel_rows import channel_input, compute_channels
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    apply_folded_requantize,
    fold_requantize,
)

# The schedule does not apply if the proof of the folded epilogue, with its left shift
# included in constants, fails.
#
# A factor for each channel, as squeeze-and-excitation blocks have, stays in a register
# if all pixels of a channel follow each other. With the zero point of the other factor,
# a product is then one multiplication and addition.

_UNROLL = (4, 3, 5, 2)
_VALUES = np.arange(INT8.min, INT8.max + 1)


@dataclass(frozen=True, slots=True)
class ProductConfig(ScheduleConfig):
    """The configuration of a product: the elements that follow each other."""

    order: Literal["elements", "channel"] = "elements"


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


def _product_configs(op: OpCall) -> Sequence[ProductConfig]:
    if _fold_product(op) is None:
        return ()
    has_channels = channel_input(op) is not None
    orders = (ProductConfig("channel"),) if has_channels else ()
    return (ProductConfig(), *orders)


def _build_channels(op: OpCall, folded: FoldedRequantize, b: Kernel) -> None:
    index = channel_input(op)
    assert index is not None
    zero_point, offset = (
        per_tensor_quant(op.input(place)).zero_point for place in (index, 1 - index)
    )

    def bind(element: ArithExpr) -> Callable[[ArithExpr], ArithExpr]:
        factor = b.let("factor", (element - zero_point) * (1 << folded.left[0]))
        start = b.let("start", factor * -offset)
        return lambda x: _requantize(folded, b.let("total", x * factor + start))

    compute_channels(b, index, bind)


def _requantize(folded: FoldedRequantize, total: ArithExpr) -> ArithExpr:
    """Return the output of a product times 2^left."""
    multiplier = ArithExpr(immediate(folded.multiplier[0], INT32))
    addend = ArithExpr(immediate(folded.addend[0], INT32))
    nudge = ArithExpr(immediate(folded.sign[0], INT32)) if folded.has_sign else None
    return apply_folded_requantize(
        folded, total, total, multiplier, addend, nudge, INT8
    )


def _build_product(op: OpCall, config: ProductConfig, b: Kernel) -> None:
    fold = _fold_product(op)
    assert fold is not None
    folded, constants = fold
    if config.order == "channel":
        _build_channels(op, folded, b)
        return
    scaled = [each for each in constants if each is not None]
    bound = max((int(np.abs(each).max()) for each in scaled), default=0)
    dtype = INT16 if bound <= INT16.max else INT32
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
        store(_requantize(folded, total))


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
