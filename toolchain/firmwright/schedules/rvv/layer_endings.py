"""Outputs of the sums of layers on RISC-V vectors: which ending a layer has.

endings.py has the endings, whose factors and right shifts a layer keeps in tables.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT16, Array
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import requantization_of
from firmwright.ops.fully_connected import defined_requantization, has_int32_multiplier
from firmwright.ops.int16x8 import ExactScale, accumulator_dtype, is_int16x8
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    accumulator_bounds,
    weight_zero_point,
)
from firmwright.schedules.epilogue import layer_requantization
from firmwright.schedules.int16_accumulation import fit_high_word
from firmwright.schedules.rvv.endings import (
    AWAY,
    BYTES,
    EXACT,
    HALVES,
    ONCE,
    UPWARD,
    Ending,
)

_LEAST_SHIFTS = {UPWARD: 0, AWAY: 1, ONCE: 2}


@dataclass(frozen=True, slots=True)
class LayerEnding:
    """The ending of a layer: factors [factor, channel], right shifts, and settings."""

    ending: Ending
    factors: Array
    right: Array
    settings: tuple[int, ...]

    def tables(
        self, b: Kernel, bias: Array, repeats: int
    ) -> tuple[tir.Buffer, tir.Buffer]:
        """Return the tables `q` and `s`, as often as channels are repeated."""
        count = len(bias)
        rows = [bias, *(np.resize(row, count) for row in self.factors)]
        table = np.tile(np.stack(rows), repeats)
        shifts = np.tile(np.resize(self.right, count), repeats)
        return b.constant("parameters", table, INT32), b.constant(
            "shifts", shifts, UINT16
        )


def supports_requantize(params: Requantization) -> bool:
    is_integer = params.rounding is not Rounding.FLOAT32
    return is_integer and -max(params.shifts) >= _LEAST_SHIFTS[_rounding_mode(params)]


def _rounding_mode(params: Requantization) -> int:
    if params.rounding is Rounding.ONCE:
        return ONCE
    return AWAY if params.clamp_min < params.zero_point else UPWARD


def ending_by_word(ending: Ending, params: Requantization) -> LayerEnding | None:
    if not supports_requantize(params):
        return None
    limits = (params.clamp_min, params.clamp_max, _rounding_mode(params))
    zero_point = (params.zero_point,) if "zero_point" in ending.settings else ()
    right = -np.array(params.shifts) - (params.rounding is Rounding.ONCE)
    factors = np.array([params.multipliers])
    return LayerEnding(ending, factors, right, (*zero_point, *limits))


def layer_ending(op: OpCall, *, takes_zero_point: bool = False) -> LayerEnding | None:
    """Return the ending of an int8 or int16 layer, or None if it has no such form.

    Unless the kernel takes it, weights may have no zero point.
    """
    if op.input(1).dtype != INT8:
        return None
    if weight_zero_point(op) and not takes_zero_point:
        return None
    is_matrix = op.op == "fully_connected"
    if op.input(0).dtype == INT8:
        if is_matrix and not has_int32_multiplier(op):
            return None
        return ending_by_word(BYTES, layer_requantization(op))
    axis = 3 if op.op == "depthwise_conv2d" else 0
    if not is_int16x8(op) or op.any_weights or accumulator_dtype(op, axis) != INT32:
        return None
    step = defined_requantization(op) if is_matrix else requantization_of(op)
    if isinstance(step, Requantization):
        return ending_by_word(HALVES, step)
    return _exact_ending(step, accumulator_bounds(op, axis))


def _exact_ending(step: ExactScale, reach: Array) -> LayerEnding | None:
    form = fit_high_word(step, reach)
    if form is None or form.low is None:
        return None
    shifts = form.common_shift if form.shift is None else form.shift + 1
    right = np.resize(shifts, len(form.high))
    mode = AWAY if form.rounds_away else UPWARD
    settings = (1 << form.left, step.clamp_min, step.clamp_max, mode)
    return LayerEnding(EXACT, np.stack([form.high, form.low]), right, settings)
