"""Operators whose result depends on shapes or constants alone."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    Importer,
    constant_ints,
    input_rank,
    input_type,
    plain_importer,
)
from firmwright.ir.graph.attributes.movement import ConstantAttrs, ShapeAttrs

_MOST_NUMBERS = 1 << 16


def _vector(values: Sequence[float]) -> ConstantAttrs:
    return ConstantAttrs(values=tuple(values), shape=(len(values),))


def _broadcast_args_attrs(context: ImportContext) -> ConstantAttrs:
    first = constant_ints(context, 0, "shapes")
    second = constant_ints(context, 1, "shapes")
    try:
        return _vector(np.broadcast_shapes(first, second))
    except ValueError as error:
        raise NotSupportedError(f"shapes {list(first)} and {list(second)}") from error


def _range_attrs(context: ImportContext) -> ConstantAttrs:
    numbers: list[float] = []
    for array in context.constants[:3]:
        if array is None or array.size != 1:
            raise NotSupportedError("a range with variable limits or step")
        numbers.append(array.reshape(-1)[0].item())
    start, limit, step = numbers
    is_finite = all(map(math.isfinite, numbers))
    count = math.ceil((limit - start) / step) if step and is_finite else 0
    if not 0 < count <= _MOST_NUMBERS:
        raise NotSupportedError(f"a range from {start} to {limit} by {step}")
    return _vector([start + k * step for k in range(count)])


def _fill_attrs(context: ImportContext) -> ShapeAttrs:
    return ShapeAttrs(shape=constant_ints(context, 0, "dimensions"))


def _rank_attrs(context: ImportContext) -> ConstantAttrs:
    return ConstantAttrs(values=(input_rank(context),), shape=())


def _constant_array(context: ImportContext, index: int, role: str) -> Array:
    array = context.constants[index]
    if array is None:
        raise NotSupportedError(f"{role} that are not constant")
    return array


def _values(array: Array) -> ConstantAttrs:
    return ConstantAttrs(values=tuple(array.reshape(-1).tolist()), shape=array.shape)


def _where_attrs(context: ImportContext) -> ConstantAttrs:
    """Return the indices, [count, rank], of the elements that are not 0."""
    if context.constants[0] is None:
        raise NotSupportedError("the number of results depends on the data")
    if context.constants[0].size > _MOST_NUMBERS:
        raise NotSupportedError(f"{context.constants[0].size:,} elements")
    return _values(np.argwhere(context.constants[0]))


def _sparse_to_dense_attrs(context: ImportContext) -> ConstantAttrs:
    """Scatter values over a default; indices are [], [count] or [count, rank]."""
    indices = _constant_array(context, 0, "indices")
    shape = constant_ints(context, 1, "shapes")
    values = _constant_array(context, 2, "values")
    default = _constant_array(context, 3, "default values")
    if not shape or min(shape) < 0 or math.prod(shape) > _MOST_NUMBERS:
        raise NotSupportedError(f"the shape {list(shape)}")
    if indices.dtype.kind != "i" or indices.ndim > 2:
        raise NotSupportedError(f"indices of {indices.dtype} {list(indices.shape)}")
    if not values.dtype == default.dtype == context.outputs[0].dtype.np:
        raise NotSupportedError("values, default and result of different types")
    if default.size != 1 or values.size not in (1, len(np.atleast_1d(indices))):
        raise NotSupportedError(f"{values.size} values and {default.size} defaults")
    rank = indices.shape[-1] if indices.ndim == 2 else 1
    if rank != len(shape) or not ((indices >= 0) & (indices < shape)).all():
        raise NotSupportedError("indices outside of the result")
    places = indices.reshape(-1, rank)
    dense = np.full(shape, default.reshape(-1)[0])
    dense[tuple(places.T)] = values.reshape(-1)
    return _values(dense)


IMPORTERS: Mapping[str, Importer] = {
    "BROADCAST_ARGS": plain_importer("constant", 2, _broadcast_args_attrs, ()),
    "FILL": plain_importer("fill", 2, _fill_attrs, (1,)),
    "RANGE": plain_importer("constant", 3, _range_attrs, ()),
    "RANK": plain_importer("constant", 1, _rank_attrs, ()),
    "SHAPE": plain_importer(
        "constant", 1, lambda context: _vector(input_type(context).shape), ()
    ),
    "SPARSE_TO_DENSE": plain_importer("constant", 4, _sparse_to_dense_attrs, ()),
    "WHERE": plain_importer("constant", 1, _where_attrs, ()),
    "ZEROS_LIKE": plain_importer(
        "fill", 1, lambda context: ShapeAttrs(shape=input_type(context).shape), ()
    ),
}
