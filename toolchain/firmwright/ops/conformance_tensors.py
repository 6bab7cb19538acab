"""Tensors of conformance cases: what the `cases` functions of operator files build them from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firmwright.ir.graph.opdef import Array, CaseTensor, ConformanceCase


def constant_tensor(
    data: Array, scales: tuple[float, ...] = (), axis: int | None = None
) -> CaseTensor:
    """A constant with zero points 0; `scales` empty means not quantised."""
    shape = tuple(int(n) for n in data.shape)
    return CaseTensor(shape, data.dtype.name, scales, (0,) * len(scales), axis, data)


def with_int4_weights(case: ConformanceCase) -> ConformanceCase:
    """`case` with weights (input 1) of 4 bits, two in a byte, the first one in its lower half."""
    x, weights, *rest = case.inputs
    assert weights is not None
    assert weights.data is not None
    halves = (weights.data.reshape(-1) >> 4).astype(np.uint8) & 0xF
    halves = np.append(halves, np.zeros(halves.size % 2, np.uint8))
    packed = halves[::2] | halves[1::2] << 4
    narrow = replace(weights, dtype="int4", data=packed)
    return replace(case, name=f"{case.name}_int4", inputs=(x, narrow, *rest))
