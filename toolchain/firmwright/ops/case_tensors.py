"""Tensors of conformance cases: what the `cases` functions of operator files build them from."""

from __future__ import annotations

from firmwright.ir.graph.opdef import Array, CaseTensor


def constant_tensor(
    data: Array, scales: tuple[float, ...] = (), axis: int | None = None
) -> CaseTensor:
    """A constant with zero points 0; `scales` empty means not quantised."""
    shape = tuple(int(n) for n in data.shape)
    return CaseTensor(shape, data.dtype.name, scales, (0,) * len(scales), axis, data)
