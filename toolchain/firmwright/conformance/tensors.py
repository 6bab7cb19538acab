"""Tensors of conformance cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.conformance.case import CaseTensor, ConformanceCase


def constant_tensor(
    data: Array, scales: tuple[float, ...] = (), axis: int | None = None
) -> CaseTensor:
    """Return a constant with zero points 0; it is not quantized if `scales` is empty."""
    shape = tuple(int(n) for n in data.shape)
    return CaseTensor(shape, data.dtype.name, scales, (0,) * len(scales), axis, data)


def with_int4_weights(case: ConformanceCase) -> ConformanceCase:
    """Return `case` with 4-bit weights (input 1), packed two to a byte, low half first."""
    x, weights, *rest = case.inputs
    assert weights is not None
    assert weights.data is not None
    halves = (weights.data.reshape(-1) >> 4).astype(np.uint8) & 0xF
    halves = np.append(halves, np.zeros(halves.size % 2, np.uint8))
    packed = halves[::2] | halves[1::2] << 4
    narrow = replace(weights, dtype="int4", data=packed)
    return replace(case, name=f"{case.name}_int4", inputs=(x, narrow, *rest))
