"""Quantized add and sub: both inputs are rescaled to a common scale, then summed.

Inputs minus zero points are shifted left by 20 bits (int16: 15) and multiplied by scale
/ (2 * the larger scale); the sum is requantized to the output. Every product rounds
twice: t = floor((x * m + 2^30) / 2^31), then t / 2^e to nearest, halves away from zero.

For nearly all int8 sums, (a x0 + b x1 + c) >> S equals this for all 65,536 pairs of
inputs, with a and b near the ratios of the scales. Semantics: TFLite's reference
integer addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import (
    Quantization,
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    as_expr,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ops import requantize
from firmwright.ops.elementwise import constant_scalar, loop_over_elements
from firmwright.ops.kernel import Kernel

_LEFT_SHIFT = 20
_LIMIT = 1 << 30
_LINEAR_SHIFTS = (22, 21, 23, 20, 19)


def _distance(change: tuple[int, ...]) -> int:
    return abs(change[0]) + abs(change[1])


_NEARBY = sorted(product(range(-4, 5), repeat=2), key=_distance)
"""Changes of the factors of a linear sum, in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class SumTerm:
    """One input of the sum: (x - zero_point) * 2^left * multiplier * 2^(shift - 31)."""

    zero_point: int
    multiplier: int
    shift: int
    left: int = _LEFT_SHIFT

    def apply(self, x: Array) -> Array:
        wide = (x.astype(np.int64) - self.zero_point) << self.left
        return multiply_by_quantized_multiplier(
            wide, self.multiplier, self.shift, Rounding.TWICE
        )


@dataclass(frozen=True, slots=True)
class RescaledSum:
    """The requantizations of both terms and of their sum."""

    terms: tuple[SumTerm, SumTerm]
    output: requantize.Requantization


def left_shift(dtype: DType) -> int:
    return 15 if dtype == INT16 else _LEFT_SHIFT


def rescaled_sum(call: OpCall) -> RescaledSum:
    first = requantize.per_tensor_quant(call.input(0))
    second = requantize.per_tensor_quant(call.input(1))
    widest = 2 * max(first.scale, second.scale)
    left = left_shift(call.input(0).dtype)

    def term(q: Quantization) -> SumTerm:
        return SumTerm(q.zero_point, *quantize_multiplier(q.scale / widest), left)

    factor = widest / ((1 << left) * requantize.per_tensor_quant(call.output).scale)
    activation = call.attributes(ActivationAttrs).activation
    output = requantize.make_requantization(
        [factor], Rounding.TWICE, call.output, activation
    )
    return RescaledSum((term(first), term(second)), output)


def check(call: OpCall) -> None:
    """Raise NotSupportedError if requantization would enlarge the sum."""
    if rescaled_sum(call).output.shifts[0] > 0:
        raise NotSupportedError("an output scale too far below the larger input scale")


def reference(call: OpCall, arrays: Sequence[Array], sign: int) -> Array:
    """Return the quantized sum of the first input and `sign` times the second."""
    params = rescaled_sum(call)
    a, b = (term.apply(x) for term, x in zip(params.terms, arrays, strict=True))
    return params.output.apply(a + sign * b, call.output.dtype)


@dataclass(frozen=True, slots=True)
class LinearSum:
    """A sum of the inputs as they are stored: (a x0 + b x1 + c) >> shift, clamped."""

    c: int
    a: int
    b: int
    shift: int


def linear_sum(call: OpCall, sign: int) -> LinearSum | None:
    """Return the sum with `sign` times the second input, if one is exact."""
    if call.input(0).dtype != INT8:
        return None
    return _fit_linear(rescaled_sum(call), sign)


@lru_cache(maxsize=256)  # the candidates of a layer and its bands of rows need it
def _fit_linear(params: RescaledSum, sign: int) -> LinearSum | None:
    """Return the sum that equals the definition for all int8, or None."""
    values = np.arange(INT8.min, INT8.max + 1)
    output = params.output
    first, second = (term.apply(values) for term in params.terms)
    y = output.apply(first[:, None] + sign * second, INT8).astype(np.int64)
    scale = output.multipliers[0] * 2.0 ** (output.shifts[0] - 31) / 255
    slopes = (first[-1] - first[0]) * scale, sign * (second[-1] - second[0]) * scale
    for shift, change in product(_LINEAR_SHIFTS, _NEARBY):
        a, b = (round(s * 2**shift) + d for s, d in zip(slopes, change, strict=True))
        least = (y << shift) - a * values[:, None] - b * values
        most = least + (1 << shift) - 1
        c = int(least[y > output.clamp_min].max(initial=-_LIMIT))
        fits = c <= most[y < output.clamp_max].min(initial=_LIMIT)
        if fits and 128 * (abs(a) + abs(b)) + abs(c) <= INT32.max:
            return LinearSum(c, a, b, shift)
    return None


def lower(call: OpCall, b: Kernel, sign: int) -> None:
    params = rescaled_sum(call)
    linear = linear_sum(call, sign)
    if linear is None:  # with general requantization; no term exceeds 2^29
        with loop_over_elements(b) as (values, store):
            first, second = params.terms
            left = _term(call, 0, first, values[0])
            right = _term(call, 1, second, values[1])
            total = left + right if sign > 0 else left - right
            store(params.output.lower(total, call.output.dtype))
        return
    table = b.constant("factors", np.array([linear.c, linear.a, linear.b]), INT32)
    total, *factors = (b.let("factor", b.load(table, [i])) for i in range(3))
    with loop_over_elements(b) as (values, store):
        for value, factor in zip(values, factors, strict=True):
            total = total + value.cast(INT32) * factor
        y = b.let("total", total) >> linear.shift
        output = params.output
        store(minimum(maximum(y, output.clamp_min), output.clamp_max).cast(INT8))


def _term(call: OpCall, index: int, term: SumTerm, x: ArithExpr) -> ArithExpr:
    constant = constant_scalar(call, index)
    if constant is not None:
        return ArithExpr(as_expr(int(term.apply(np.array(int(constant)))), INT32))
    shifted = (x.cast(INT32) - term.zero_point) * (1 << term.left)
    step = shifted, term.multiplier, term.shift
    return call_intrinsic("requantize_twice", step, INT32)
