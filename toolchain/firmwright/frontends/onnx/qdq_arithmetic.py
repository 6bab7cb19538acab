"""Quantized sums, differences and products, equal to ONNX Runtime for all pairs.

ONNX Runtime (AVX2) computes them in float32, with fused multiply-adds for sums. The
integer coefficients (ops/fitted_arithmetic.py) are checked for all pairs of inputs, or
all products. Where none fit, because floats round many ties differently, a formula
computes the floats themselves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.qdq import UNSIGNED_OFFSET, QdqParameters
from firmwright.ir.graph.attributes.values import FittedProductAttrs, TableSumAttrs
from firmwright.ops.expression_language import evaluate_in_numpy

_INT8 = np.arange(INT8.min, INT8.max + 1)
_BEYOND = 1 << 62
_NEAR = (0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6, 8, -8)
"""Changes of the rounded multiplier to try."""
_NEAR_TIE = 2.0**-12
"""Steps from a tie, far above the error of a float32 quotient of up to 256 steps."""
_FLOAT_BITS = 24
_STEPS_MAX = 256.0
"""Any number of steps from here on saturates."""
_SOFTMAX_BITS_MAX = 28
"""Bits of a softmax's values times floor(1 / scale) whose products fit int64."""


_FAR = float(1 << 30)


class IntegerKernelError(NotSupportedError):
    """Raised if only floats are left where ONNX Runtime computes on integers."""


@dataclass(frozen=True, slots=True)
class BinaryOperands:
    """Quantizations of operands and result in [low, high].

    A repeated operand is added first.
    """

    a: Quantization
    b: Quantization
    target: QdqParameters
    low: int
    high: int
    is_first_repeated: bool

    @property
    def scales(self) -> tuple[np.float32, np.float32, np.float32]:
        a = np.float32(self.a.scale)
        b = np.float32(self.b.scale)
        return a, b, np.float32(self.target.scale)

    @property
    def offset(self) -> int:
        return UNSIGNED_OFFSET * self.target.is_unsigned

    def clipped(self, steps: Array) -> Array:
        """Return int8 of float results, which include the model's zero point."""
        check_range(float(np.abs(steps).max()))
        whole = np.rint(steps) - self.offset
        return np.asarray(np.clip(whole, self.low, self.high), np.int64)

    def rounded(self, steps: str) -> str:
        """Return a formula of the int8 result of one of `steps`, like `clipped`."""
        whole = f"rint({steps}) - {float(self.offset)!r}"
        return f"int8(min(max({whole}, {float(self.low)!r}), {float(self.high)!r}))"


def check_range(steps: float) -> None:
    """Raise IntegerKernelError for steps that ONNX Runtime does not saturate."""
    if not steps < 1 << 31:
        raise IntegerKernelError(
            "an output scale so small that ONNX Runtime's results depend on the CPU "
            "(steps beyond 32 bits); choose a larger one"
        )


def sums(x: BinaryOperands) -> Array:
    """Return QLinearAdd of all pairs, each sum of a product rounded once to float32."""
    a_ratio, b_ratio, fixed = _sum_coefficients(x)
    values = (_INT8 + x.offset).astype(np.float64)
    terms = values[:, None] * np.float64(a_ratio), values[None, :] * np.float64(b_ratio)
    first, second = terms if x.is_first_repeated else terms[::-1]
    inner = (first + np.float64(fixed)).astype(np.float32).astype(np.float64)
    return x.clipped((inner + second).astype(np.float32))


def _sum_coefficients(x: BinaryOperands) -> tuple[np.float32, np.float32, np.float32]:
    """Return QLinearAdd's factors of a and b and its addend."""
    a_scale, b_scale, y_scale = x.scales
    a_ratio, b_ratio = a_scale / y_scale, b_scale / y_scale
    a_zero = x.a.zero_point + x.offset
    b_zero = x.b.zero_point + x.offset
    zero = x.target.zero_point + x.offset
    product = np.float32(b_ratio * np.float32(b_zero))
    inner = np.float64(a_ratio) * a_zero + np.float64(product)
    fixed = np.float32(zero) - np.float32(inner)
    return a_ratio, b_ratio, np.float32(fixed)


def in_floats(x: BinaryOperands, operation: Callable[[Array, Array], Array]) -> Array:
    """Return the quantized results of a float operation on all dequantized pairs."""
    a_scale, b_scale, _ = x.scales
    a = a_scale * (_INT8 - x.a.zero_point).astype(np.float32)
    b = b_scale * (_INT8 - x.b.zero_point).astype(np.float32)
    steps = x.target.steps(operation(a[:, None], b[None, :]))
    whole = np.rint(steps) + x.target.zero_point + x.offset
    return x.clipped(np.clip(whole, -_FAR, _FAR))


def products(x: BinaryOperands) -> Array:
    """Return QLinearMul of all pairs."""
    factor, zero = _product_coefficients(x)
    return x.clipped(_integer_products(x).astype(np.float32) * factor + zero)


def _product_coefficients(x: BinaryOperands) -> tuple[np.float32, np.float32]:
    """Return QLinearMul's factor of the product and its addend."""
    a_scale, b_scale, y_scale = x.scales
    factor = np.float32(a_scale * b_scale) / y_scale
    return factor, np.float32(x.target.zero_point + x.offset)


def _integer_products(x: BinaryOperands) -> Array:
    return np.multiply.outer(_INT8 - x.a.zero_point, _INT8 - x.b.zero_point)


def sum_formula(x: BinaryOperands, results: Array) -> str | None:
    """Return an expression of the stored a and b with QLinearAdd's `results`, or None.

    A multiply-add of one rounding is a sum of three floats, because half of a ratio's
    bits times an integer is exact. The last addition could round twice, so all pairs
    are evaluated.
    """
    a_ratio, b_ratio, fixed = _sum_coefficients(x)
    if not np.isfinite([a_ratio, b_ratio, fixed]).all():
        return None
    first, second = ("a", a_ratio), ("b", b_ratio)
    if not x.is_first_repeated:
        first, second = second, first
    steps, total = [], repr(float(fixed))
    for name, ratio in (first, second):
        high, low = _halves(ratio)
        lost = f"(part_{name} - (sum_{name} - rest_{name}))"
        steps += [
            f"value_{name} = float32(int32({name}) + {x.offset})",
            f"part_{name} = value_{name} * {high!r}",
            f"sum_{name} = part_{name} + {total}",
            f"rest_{name} = sum_{name} - part_{name}",
            f"error_{name} = {lost} + ({total} - rest_{name})",
            f"total_{name} = sum_{name} + (error_{name} + value_{name} * {low!r})",
        ]
        total = f"total_{name}"
    formula = "; ".join([*steps, x.rounded(total)])
    every = _INT8.astype(np.int8)
    found = evaluate_in_numpy(formula, [every[:, None], every[None, :]])
    return formula if np.array_equal(found, results) else None


def _halves(ratio: np.float32) -> tuple[float, float]:
    """Return two floats of at most 12 bits with the sum `ratio`."""
    mantissa, exponent = math.frexp(float(ratio))
    high = math.ldexp(round(math.ldexp(mantissa, 12)), exponent - 12)
    return high, float(ratio) - high


def product_formula(x: BinaryOperands) -> str | None:
    """Return QLinearMul as an expression of the stored a and b; None if not finite."""
    factor, zero = _product_coefficients(x)
    if not np.isfinite(np.float32(1 << 16) * factor):
        return None
    product = f"(int32(a) - {x.a.zero_point}) * (int32(b) - {x.b.zero_point})"
    return x.rounded(f"float32({product}) * {float(factor)!r} + {float(zero)!r}")


def fit_table_sum(
    x: BinaryOperands, results: Array, sign: int = 1
) -> TableSumAttrs | None:
    """Return attributes of a `table_sum` near a + `sign` b with `results`, or None."""
    a_scale, b_scale, y_scale = map(float, x.scales)
    ratio = a_scale / y_scale
    a = (_INT8 - x.a.zero_point) * ratio
    b = (_INT8 - x.b.zero_point) * (sign * b_scale / y_scale)
    b = b + x.target.zero_point + 0.5
    reach = np.abs(_INT8 * ratio).max() + np.abs(b).max() + np.abs(a).max()
    # No scaled sum is beyond 2^29.
    shift = 29 - math.ceil(math.log2(reach))
    if shift < INT8.bits:
        return None
    usual = round(ratio * 2**shift)
    addends = (b - x.a.zero_point * a_scale / y_scale) * 2**shift
    ideal = np.rint(addends).astype(np.int64)
    for window in (0, 1, 2, 4, 8, 16):
        for change in _NEAR:
            multiplier = usual + change
            scaled = _INT8[:, None] * multiplier
            least, most = _addends(x, results, scaled, shift, window)
            if (least <= most).all():
                table = tuple(np.clip(ideal, least, most).tolist())
                return TableSumAttrs(
                    multiplier=multiplier,
                    table=table,
                    shift=shift,
                    window=window,
                    low=x.low,
                    high=x.high,
                )
    return None


def _addends(
    x: BinaryOperands, results: Array, scaled: Array, shift: int, window: int
) -> tuple[Array, Array]:
    """Return the least and the greatest addend for each column that gives `results`.

    A value v gives at least k if v >= (k << shift) - window * ((k - 1) & 1).
    """
    at_least = (results << shift) - window * ((results - 1) & 1) - scaled
    below_next = ((results + 1) << shift) - window * (results & 1) - 1 - scaled
    least = np.where(results > x.low, at_least, -_BEYOND).max(axis=0)
    return least, np.where(results < x.high, below_next, _BEYOND).min(axis=0)


def fit_product(x: BinaryOperands, results: Array) -> FittedProductAttrs | None:
    """Return attributes of a `fitted_product` that gives `results` [a, b], or None."""
    a_scale, b_scale, y_scale = map(float, x.scales)
    factor = a_scale * b_scale / y_scale
    shift = 32 if factor < 0.5 else 30 - math.ceil(math.log2(factor))
    usual = round(factor * 2**shift)
    ideal = round((x.target.zero_point + 0.5) * 2**shift)
    values = _integer_products(x)
    for window in (0, 1, *(1 << k for k in range(2, shift - 12, 2))):
        for change in _NEAR:
            least, most = _addends(x, results, values * (usual + change), shift, window)
            lowest, highest = int(least.max()), int(most.min())
            if lowest <= highest:
                return FittedProductAttrs(
                    multiplier=usual + change,
                    addend=min(max(ideal, lowest), highest),
                    shift=shift,
                    window=window,
                    low=x.low,
                    high=x.high,
                )
    return None


def is_repeated(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether a broadcast's first operand is constant along its last run."""
    pairs = zip((1, *a)[::-1], (1, *b)[::-1], strict=False)
    for n, m in pairs:
        if (n, m) != (1, 1):
            return n == 1
    return len(a) > 0


def exponentials(scale: float, count: int) -> Array:
    """Return exp of -255 to 0 steps of `scale`, scaled for a finite sum of `count`.

    ONNX Runtime rounds the logarithm to float32, which decides the last bits of the
    entries.
    """
    limit = np.float32(np.finfo(np.float32).max) / np.float32(count)
    raised = max(0.0, float(np.float32(math.log(limit))) - 5) / scale
    powers = [math.exp((step + raised) * scale) for step in range(-255, 1)]
    return np.array(powers, np.float32)


def softmax_steps(scale: float, largest: float, count: int) -> str:
    """Return an expression of a * floor(1 / `scale`) / b, half to even as in float64.

    a is an entry of a table of exponentials with the maximum `largest`, b the sum of
    `count` entries, one of them the largest. The product has at most 48 bits, so
    float64 has no other ties than the exact quotient. float32 shows whether one is
    near; there, integers are compared that represent a and b exactly. An a whose last
    bits int64 drops is far below half a step.
    """
    steps = max(float(np.floor(np.float32(1) / np.float32(scale))), 0.0)
    counted = max(steps, 1.0)
    if not math.log2(counted * count) <= _SOFTMAX_BITS_MAX:
        raise IntegerKernelError(
            f"a softmax of {count} values in steps of {scale:g}: steps below {count} / "
            f"2^{_SOFTMAX_BITS_MAX} are not supported; choose a larger output scale, "
            "such as 1/256"
        )
    bits = _FLOAT_BITS + 1 + math.ceil(math.log2(counted))
    unit = 2.0 ** (bits - math.frexp(largest)[1])
    return "; ".join(
        [
            f"steps = min(a / b * {steps!r}, {_STEPS_MAX!r})",
            "under = floor(steps)",
            f"limited = min(a, b * {2 * _STEPS_MAX / counted!r})",
            f"doubled = int64(limited * {unit!r}) * {2 * int(steps)}",
            f"tie = (2 * int64(under) + 1) * int64(b * {unit!r})",
            "is_above = doubled - tie + (int64(under) & 1) > 0",
            "exact = under + where(is_above, 1.0, 0.0)",
            f"where(abs(steps - under - 0.5) < {_NEAR_TIE!r}, exact, rint(steps))",
        ]
    )
