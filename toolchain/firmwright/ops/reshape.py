"""reshape: x with another shape; device_copy: a copy of x in another memory.

TFLite's RESHAPE, SQUEEZE and EXPAND_DIMS take the new shape from the output tensor. If
input and output can be one buffer, the call is a view. PlanDevices inserts device_copy
where the consumer cannot access the producer's memory.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import CopyAxis, StridedCopy, lower_copies


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.elements != y.elements:
        raise NotSupportedError(
            f"{x.elements} elements cannot take the shape {list(y.shape)}"
        )
    return (TensorType(y.shape, x.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (arrays[0].reshape(call.output.shape),)


def lower(call: OpCall, b: Kernel) -> None:
    """Copy the elements; needed only if input and output must be distinct buffers."""
    lower_copies(b, StridedCopy((CopyAxis(b.y.elements, 1, 1),)))


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "reshape",
        infer,
        reference,
        lower,
        is_view=True,
    ),
    OpDef(
        "device_copy",
        lambda call: (call.input(0),),
        lambda call, arrays: (arrays[0].copy(),),
        lower,
    ),
)
