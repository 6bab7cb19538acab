"""Quantized add and sub: both inputs are rescaled to a common scale, then summed.

Inputs minus zero points are shifted left by 20 bits (int16: 15) and multiplied by scale / (2 * the
larger scale); the sum is requantized to the output. Every product rounds twice:
t = floor((x * m + 2^30) / 2^31), then t / 2^e to nearest, halves away from zero.

int8 terms need 32 bits only: v * 2^20 * m with |v| < 2^8 and m = 2^16 m1 + m0 gives
t = 2^5 v m1 + floor((v m0 + 2^10) / 2^11). Terms are computed as 4 t, the input of
`requantize_fourfold`. Semantics: TFLite's reference integer addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier, quantize_multiplier
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr, call_intrinsic
from firmwright.ops import requantize
from firmwright.ops.elementwise import constant_scalar, loop_over_elements
from firmwright.ops.kernel import Kernel

_LEFT_SHIFT = 20
_LEFT_SHIFT_INT16 = 15
_HALF = 1 << 30
"""The fixed-point multiplier of 1/2 (shift 0), 1/4 (shift -1) and so on."""


@dataclass(frozen=True, slots=True)
class SumTerm:
    """One input of the sum: (x - zero_point) * 2^left * multiplier * 2^(shift - 31)."""

    zero_point: int
    multiplier: int
    shift: int
    left: int = _LEFT_SHIFT

    def apply(self, x: Array) -> Array:
        wide = (x.astype(np.int64) - self.zero_point) << self.left
        return multiply_by_quantized_multiplier(wide, self.multiplier, self.shift, Rounding.TWICE)

    def fourfold(self, b: Kernel, x: ArithExpr) -> ArithExpr:
        """Return 4 * `apply` in TIR; a multiplier that is a power of two needs one product only."""
        offset = x.cast(INT32) - self.zero_point
        right = -self.shift
        if self.multiplier == _HALF and right < _LEFT_SHIFT:
            return offset * (1 << (_LEFT_SHIFT + 1 - right))
        v = b.let("v", offset)
        high, low = divmod(self.multiplier, 1 << 16)
        wide = b.let("t", v * (high << 5) + ((v * low + (1 << 10)) >> 11))
        if right == 0:
            return wide * 4
        rounded = wide + (wide >> 31) + (1 << (right - 1))
        if right == 1:
            return (rounded >> 1) * 4
        return (rounded >> (right - 2)) & -4


@dataclass(frozen=True, slots=True)
class RescaledSum:
    """The requantizations of both terms and of their sum."""

    terms: tuple[SumTerm, SumTerm]
    output: requantize.Requantization


def rescaled_sum(call: OpCall) -> RescaledSum:
    kinds = [requantize.per_tensor_quant(call.input(index)) for index in (0, 1)]
    widest = 2 * max(kind.scale for kind in kinds)
    left = _LEFT_SHIFT_INT16 if call.input(0).dtype == INT16 else _LEFT_SHIFT
    terms = [SumTerm(q.zero_point, *quantize_multiplier(q.scale / widest), left) for q in kinds]
    factor = widest / ((1 << left) * requantize.per_tensor_quant(call.output).scale)
    output = requantize.make_requantization(
        [factor], Rounding.TWICE, call.output, call.str_attr("activation")
    )
    return RescaledSum((terms[0], terms[1]), output)


def check(call: OpCall) -> None:
    """Raise NotSupportedError if requantization would enlarge the sum."""
    if rescaled_sum(call).output.shifts[0] > 0:
        raise NotSupportedError("an output scale too far below the larger input scale")


def reference(call: OpCall, arrays: Sequence[Array], sign: int) -> Array:
    """Return the quantized sum of the first input and `sign` times the second."""
    params = rescaled_sum(call)
    a, b = (term.apply(x) for term, x in zip(params.terms, arrays, strict=True))
    return params.output.apply(a + sign * b, call.output.dtype)


def lower(call: OpCall, b: Kernel, sign: int) -> None:
    params = rescaled_sum(call)
    if call.input(0).dtype == INT16:
        _lower_int16(call, b, params, sign)
        return
    with loop_over_elements(b) as (values, store):
        left, right = (
            _fourfold(call, b, params.terms[index], index, x) for index, x in enumerate(values)
        )
        sum4 = b.let("sum4", left + right if sign > 0 else left - right)
        store(requantize.requantize_fourfold(sum4, params.output, INT8))


def _lower_int16(call: OpCall, b: Kernel, params: RescaledSum, sign: int) -> None:
    """Emit an int16 sum with general requantization; no term exceeds 2^29."""
    with loop_over_elements(b) as (values, store):
        left, right = (
            _term(call, index, term, x)
            for index, (term, x) in enumerate(zip(params.terms, values, strict=True))
        )
        total, step = left + right if sign > 0 else left - right, params.output
        store(step.lower(total, INT16))


def _term(call: OpCall, index: int, term: SumTerm, x: ArithExpr) -> ArithExpr:
    constant = constant_scalar(call, index)
    if constant is not None:
        return ArithExpr(as_expr(int(term.apply(np.array(int(constant)))), INT32))
    shifted = x.cast(INT32) * (1 << term.left)
    return call_intrinsic("requantize_twice", [shifted, term.multiplier, term.shift], INT32)


def _fourfold(call: OpCall, b: Kernel, term: SumTerm, index: int, x: ArithExpr) -> ArithExpr:
    constant = constant_scalar(call, index)
    if constant is None:
        return term.fourfold(b, x)
    return ArithExpr(as_expr(4 * int(term.apply(np.array(int(constant)))), INT32))
