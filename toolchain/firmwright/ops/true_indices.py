"""true_indices: the indices of the true elements of x, and their number.

Output 0 [elements of x] holds the int32 indices in ascending order, then zeros, output
1 their number. Semantics: ONNX's NonZero and Compress, whose results have the length of
this number.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import BOOL, INT32, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import INDEX, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import lower_fill


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if x.dtype != BOOL or len(x.shape) != 1:
        raise NotSupportedError(f"indices of true elements of {x.dtype.name}")
    return (TensorType(x.shape, INT32), TensorType((), INT32))


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (places,) = np.nonzero(arrays[0])
    indices = np.zeros(arrays[0].shape, np.int32)
    indices[: len(places)] = places
    return indices, np.array(len(places), np.int32)


def lower(call: OpCall, b: Kernel) -> None:
    x, (indices, count) = b.input(0), b.outputs
    (size,) = x.shape
    lower_fill(b, indices, 0)
    total = b.register("total", UINT32, 0)
    with b.for_("i", size) as i, b.if_(b.load(x, [i])):
        place = minimum(total.value, size - 1).cast(INDEX)
        b.store(indices, [place], i.cast(INT32))
        total.add(1)
    b.store(count, [], total.value.cast(INT32))


OPDEF = OpDef("true_indices", infer, reference, lower)
