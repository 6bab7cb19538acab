"""Sums, differences and products of quantized tensors, equal to ONNX Runtime for every input pair.

ONNX Runtime (AVX2) computes them in float32, with fused multiply-adds for sums. The integer
coefficients (ops/fitted_arithmetic.py) are checked for all pairs of inputs, or all products.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.qdq import UNSIGNED_OFFSET, QdqParameters
from firmwright.ir.core import Attr

_INT8 = np.arange(INT8.min, INT8.max + 1)
_BEYOND = 1 << 62
_NEAR = (0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6, 8, -8)
"""Changes of the rounded multiplier to try."""


@dataclass(frozen=True, slots=True)
class BinaryOperands:
    """Quantizations of operands and result in [low, high]; a repeated operand is added first."""

    a: Quantization
    b: Quantization
    target: QdqParameters
    low: int
    high: int
    is_first_repeated: bool

    @property
    def scales(self) -> tuple[np.float32, np.float32, np.float32]:
        a, b = np.float32(self.a.scale), np.float32(self.b.scale)
        return a, b, np.float32(self.target.scale)

    @property
    def offset(self) -> int:
        return UNSIGNED_OFFSET * self.target.is_unsigned

    def clipped(self, steps: Array) -> Array:
        """Return results as int8 from float results, which include the model's zero point."""
        whole = np.rint(steps) - self.offset
        return np.asarray(np.clip(whole, self.low, self.high), np.int64)


def sums(x: BinaryOperands) -> Array:
    """Return QLinearAdd of all pairs; each sum of a product is rounded once to float32."""
    a_scale, b_scale, y_scale = x.scales
    a_ratio, b_ratio = a_scale / y_scale, b_scale / y_scale
    a_zero, b_zero, zero = (
        point + x.offset for point in (x.a.zero_point, x.b.zero_point, x.target.zero_point)
    )
    product = np.float32(b_ratio * np.float32(b_zero))
    fixed = np.float32(zero) - np.float32(np.float64(a_ratio) * a_zero + np.float64(product))
    values = (_INT8 + x.offset).astype(np.float64)
    terms = values[:, None] * np.float64(a_ratio), values[None, :] * np.float64(b_ratio)
    first, second = terms if x.is_first_repeated else terms[::-1]
    inner = (first + np.float64(fixed)).astype(np.float32).astype(np.float64)
    return x.clipped((inner + second).astype(np.float32))


def in_floats(x: BinaryOperands, operation: Callable[[Array, Array], Array]) -> Array:
    """Return a float operation on all pairs, between DequantizeLinear and QuantizeLinear."""
    a_scale, b_scale, _ = x.scales
    a = a_scale * (_INT8 - x.a.zero_point).astype(np.float32)
    b = b_scale * (_INT8 - x.b.zero_point).astype(np.float32)
    steps = x.target.steps(operation(a[:, None], b[None, :]))
    return x.clipped(np.rint(steps) + x.target.zero_point + x.offset)


def products(x: BinaryOperands) -> Array:
    """Return QLinearMul of all pairs."""
    a_scale, b_scale, y_scale = x.scales
    factor = np.float32(a_scale * b_scale) / y_scale
    zero = np.float32(x.target.zero_point + x.offset)
    return x.clipped(_integer_products(x).astype(np.float32) * factor + zero)


def _integer_products(x: BinaryOperands) -> Array:
    return np.multiply.outer(_INT8 - x.a.zero_point, _INT8 - x.b.zero_point)


def fit_table_sum(x: BinaryOperands, results: Array, sign: int = 1) -> dict[str, Attr] | None:
    """Return the attributes of a `table_sum` with these `results`, near a + `sign` b, or None."""
    a_scale, b_scale, y_scale = map(float, x.scales)
    a = (_INT8 - x.a.zero_point) * (a_scale / y_scale)
    b = (_INT8 - x.b.zero_point) * (sign * b_scale / y_scale) + x.target.zero_point + 0.5
    reach = np.abs(_INT8 * (a_scale / y_scale)).max() + np.abs(b).max() + np.abs(a).max()
    shift = 29 - math.ceil(math.log2(reach))
    if shift < INT8.bits:
        return None
    usual = round(a_scale / y_scale * 2**shift)
    ideal = np.rint((b - x.a.zero_point * a_scale / y_scale) * 2**shift).astype(np.int64)
    for window in (0, 1, 2, 4, 8, 16):
        for change in _NEAR:
            multiplier = usual + change
            least, most = _addends(x, results, _INT8[:, None] * multiplier, shift, window)
            if (least <= most).all():
                table = tuple(np.clip(ideal, least, most).tolist())
                return {
                    "multiplier": multiplier, "table": table, "shift": shift, "window": window,
                    "low": x.low, "high": x.high,
                }  # fmt: skip
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


def fit_product(x: BinaryOperands, results: Array) -> dict[str, Attr] | None:
    """Return the attributes of a `fitted_product` that gives `results` [a, b], or None."""
    a_scale, b_scale, y_scale = map(float, x.scales)
    factor = a_scale * b_scale / y_scale
    shift = 32 if factor < 0.5 else 30 - math.ceil(math.log2(factor))
    usual = round(factor * 2**shift)
    ideal, values = round((x.target.zero_point + 0.5) * 2**shift), _integer_products(x)
    for window in (0, 1, *(1 << k for k in range(2, shift - 12, 2))):
        for change in _NEAR:
            least, most = _addends(x, results, values * (usual + change), shift, window)
            lowest, highest = int(least.max()), int(most.min())
            if lowest <= highest:
                return {
                    "multiplier": usual + change, "addend": min(max(ideal, lowest), highest),
                    "shift": shift, "window": window, "low": x.low, "high": x.high,
                }  # fmt: skip
    return None


def is_repeated(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether the first operand of a broadcast is constant along its last run."""
    pairs = zip((1, *a)[::-1], (1, *b)[::-1], strict=False)
    return next((n == 1 for n, m in pairs if (n, m) != (1, 1)), len(a) > 0)


def exponentials(scale: float, count: int) -> Array:
    """Return exp of -255 to 0 steps of `scale`, scaled so that a sum of `count` is finite."""
    limit = float(np.finfo(np.float32).max / np.float32(count))
    raised = max(0.0, np.log(limit) - 5) / scale
    return np.asarray(np.exp((np.arange(256) - 255 + raised) * scale), np.float32)
