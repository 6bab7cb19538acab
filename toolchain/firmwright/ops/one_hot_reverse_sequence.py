"""one_hot and reverse_sequence.

Along `axis`, one_hot holds input 1 at the index and input 2 elsewhere; an index outside
the depth gives input 2 only. reverse_sequence reverses the first elements along
`seq_dim`; input 1 holds their number for each index of `batch_dim`, clamped to the axis
length. Semantics: TFLite's reference operators of these names.
"""

import math
from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT32, INT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.movement import ReverseSequenceAttrs
from firmwright.ir.graph.attributes.values import OneHotAttrs
from firmwright.ir.tir.builder import INDEX, ArithExpr, maximum, minimum, select
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import DTYPES


def check_data_and_indices(call: OpCall, data: int = 0, indices: int = 1) -> None:
    x = call.input(data)
    index_type = call.input(indices)
    if x.dtype not in DTYPES or call.output.dtype != x.dtype:
        raise NotSupportedError(
            f"{call.op} of {x.dtype.name} giving {call.output.dtype.name}"
        )
    if index_type.dtype not in (INT32, INT64):
        raise NotSupportedError(f"indices of {index_type.dtype.name}")


def clamp_index(index: ArithExpr, count: int) -> ArithExpr:
    return minimum(maximum(index.cast(INDEX), 0), count - 1)


def _hot_infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(OneHotAttrs)
    check_data_and_indices(call, 1, 0)
    if call.input(1).elements != 1 or call.input(2).elements != 1:
        raise NotSupportedError("on and off values that are not scalars")
    shape = call.input(0).shape
    axis = attrs.axis
    depth = attrs.depth
    if depth < 1 or call.input(2).dtype != call.input(1).dtype:
        raise NotSupportedError(
            f"a depth of {depth}, or on and off values of different types"
        )
    shape = (*shape[:axis], depth, *shape[axis:])
    return (TensorType(shape, call.output.dtype, call.output.quantization),)


def _hot_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(OneHotAttrs)
    axis, depth = attrs.axis, attrs.depth
    places = np.arange(depth).reshape((-1,) + (1,) * (arrays[0].ndim - axis))
    hot = np.expand_dims(arrays[0], axis) == places
    on = arrays[1].reshape(())
    off = arrays[2].reshape(())
    return (np.where(hot, on, off).astype(call.output.dtype.np),)


def _hot_lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(OneHotAttrs)
    shape = call.input(0).shape
    axis = attrs.axis
    depth = attrs.depth
    before = math.prod(shape[:axis])
    after = math.prod(shape[axis:])
    indices = b.view("indices", b.input(0), 0, (before, after))
    on = b.view("on", b.input(1), 0, (1,))
    off = b.view("off", b.input(2), 0, (1,))
    y = b.view("out", b.y, 0, (before, depth, after), access="w")
    with (
        b.for_("outer", before) as outer,
        b.for_("k", depth) as k,
        b.for_("inner", after) as inner,
    ):
        is_hot = b.load(indices, [outer, inner]).cast(INDEX).equal(k)
        b.store(y, [outer, k, inner], select(is_hot, b.load(on, [0]), b.load(off, [0])))


def _sequence_infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(ReverseSequenceAttrs)
    check_data_and_indices(call)
    x = call.input(0)
    batch = attrs.batch_dim
    axis = attrs.seq_dim
    if not (0 <= batch < len(x.shape) and 0 <= axis < len(x.shape)):
        raise NotSupportedError(f"axes {batch} and {axis} of {len(x.shape)}")
    if batch == axis or call.input(1).shape != (x.shape[batch],):
        raise NotSupportedError(f"lengths of shape {list(call.input(1).shape)}")
    return (TensorType(x.shape, x.dtype, call.output.quantization),)


def _sequence_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(ReverseSequenceAttrs)
    batch = attrs.batch_dim
    axis = attrs.seq_dim
    x = np.moveaxis(arrays[0], (batch, axis), (0, 1))
    y = x.copy()
    for k, length in enumerate(np.clip(arrays[1], 0, x.shape[1])):
        y[k, :length] = x[k, :length][::-1]
    return (np.ascontiguousarray(np.moveaxis(y, (0, 1), (batch, axis))),)


def _sequence_lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(ReverseSequenceAttrs)
    shape = call.input(0).shape
    batch = attrs.batch_dim
    axis = attrs.seq_dim
    with b.loops("i", shape) as index:
        length = b.let("length", b.load(b.input(1), [index[batch]]).cast(INDEX))
        place = index[axis]
        reversed_index = select(place < length, length - 1 - place, place)
        source = b.let("source", clamp_index(reversed_index, shape[axis]))
        source_index = [*index[:axis], source, *index[axis + 1 :]]
        b.store(b.y, index, b.load(b.input(0), source_index))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "one_hot",
        _hot_infer,
        _hot_reference,
        _hot_lower,
    ),
    OpDef(
        "reverse_sequence",
        _sequence_infer,
        _sequence_reference,
        _sequence_lower,
    ),
)
