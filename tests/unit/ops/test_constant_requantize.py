"""Requantization by one rounding multiply-high and tables, against base/quant.py."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.tir.builder import Builder, maximum, minimum
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ir.tir.traversal import walk
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.ops.requantize import Requantization
from firmwright.schedules.scalar.requantize_tables import reduce_requantization

MULTIPLIERS = (1 << 30, (1 << 30) + 1, 1288490189, 1518500250, (1 << 31) - 1)
LIMIT = 1 << 28


def edge_values(right: int) -> np.ndarray:
    """Return values near zero, near ties of the shift, at both ends and between."""
    rng = np.random.Generator(np.random.PCG64(right + 31))
    step = 1 << max(min(right, 27), 0)
    ties = np.arange(-6, 7) * (step // 2)
    near = (ties[:, None] + np.arange(-2, 3)).reshape(-1)
    drawn = rng.integers(-LIMIT + 1, LIMIT, 400)
    values = np.concatenate(
        [near, np.arange(-300, 301), drawn, [-LIMIT + 1, LIMIT - 1]]
    )
    return values[np.abs(values) < LIMIT].astype(np.int32)


def computed(values: np.ndarray, params: Requantization, dtype: DType) -> np.ndarray:
    b = Builder("step")
    x = b.buffer_param("x", INT32, values.shape, "in", 4)
    y = b.buffer_param("y", dtype, values.shape, "out", 4)
    with b.for_("i", len(values)) as i:
        value = minimum(maximum(b.load(x, [i]), int(values.min())), int(values.max()))
        b.store(y, [i], params.lower(value, dtype))
    func, result = reduce_requantization(b.build(), b), np.zeros(values.shape, dtype.np)
    calls = {
        part.name for part in walk(func.body) if isinstance(part, tir.IntrinsicCall)
    }
    assert "requantize_twice" not in calls
    Interpreter({"step": func}, BASE_INTRINSICS, {}).run(
        "step", {"x": values, "y": result}
    )
    return result


@pytest.mark.parametrize("multiplier", MULTIPLIERS)
@pytest.mark.parametrize("right", [-2, -1, 0, 1, 2, 3, 7, 19, 22, 23, 30, 31])
def test_result_equals_the_definition_with_both_roundings(
    multiplier: int, right: int
) -> None:
    values = edge_values(right)
    if right < 0:  # A left shift must not leave 32 bits.
        values = values[np.abs(values) < LIMIT >> -right]
    for zero_point, dtype in ((0, INT8), (-128, INT8), (127, INT8), (-32768, INT16)):
        params = Requantization(
            (multiplier,), (-right,), Rounding.TWICE, zero_point, dtype.min, dtype.max
        )
        np.testing.assert_array_equal(
            computed(values, params, dtype),
            params.apply(values.astype(np.int64), dtype),
        )


def test_result_is_clamped_to_the_activation() -> None:
    values = edge_values(1)
    params = Requantization((1 << 30,), (0,), Rounding.TWICE, -3, -3, 20)
    result = computed(values, params, INT8)
    assert (result.min(), result.max()) == (-3, 20)
    np.testing.assert_array_equal(result, params.apply(values.astype(np.int64), INT8))
