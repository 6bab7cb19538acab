"""Broadcasting, loops and import of elementwise operators.

Shapes are right-aligned and axes of size 1 are repeated, as in numpy and TFLite. Adjacent axes with
the same broadcasting in all inputs become one loop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import float_activation_range, import_activation, tensor_quant

DTYPES = ("int8", "int16", "int32", "float32")


def broadcast_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    shape: list[int] = []
    for left, right in zip(_aligned(a, rank), _aligned(b, rank), strict=True):
        if left != right and 1 not in (left, right):
            raise NotSupportedError(f"incompatible shapes {list(a)} and {list(b)}")
        shape.append(right if left == 1 else left)
    return tuple(shape)


def _aligned(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def infer_binary(call: OpCall) -> tuple[TensorType, ...]:
    """Check two inputs and an output of one dtype and return the output type.

    int8 and int16 are quantized per tensor, int16 with zero point 0. int32 values wrap.
    """
    a, b, y = call.input(0), call.input(1), call.output
    if a.dtype not in (INT8, INT16, INT32, FLOAT32) or (b.dtype, y.dtype) != (a.dtype, a.dtype):
        raise NotSupportedError(f"{a.dtype.name} and {b.dtype.name} giving {y.dtype.name}")
    if a.dtype == INT32 and call.str_attr("activation") != "none":
        raise NotSupportedError("int32 with an activation")
    if a.dtype in (INT8, INT16):
        for kind in (a, b, y):
            if tensor_quant(kind).zero_point and a.dtype == INT16:
                raise NotSupportedError("int16 with a zero point other than 0")
    return (TensorType(broadcast_shape(a.shape, b.shape), a.dtype, y.quantization),)


def broadcast_loops(
    shapes: Sequence[Sequence[int]], y_shape: Sequence[int]
) -> list[tuple[int, set[int]]]:
    """Return each loop's extent and the numbers of the inputs that advance in it."""
    loops: list[tuple[int, set[int]]] = []
    rank = len(y_shape)
    aligned = [_aligned(shape, rank) for shape in shapes]
    for axis, extent in enumerate(y_shape):
        if extent == 1:
            continue
        moving = {index for index, shape in enumerate(aligned) if shape[axis] == extent}
        if loops and loops[-1][1] == moving:
            loops[-1] = (loops[-1][0] * extent, moving)
        else:
            loops.append((extent, moving))
    return loops or [(1, set(range(len(shapes))))]


def lower_elementwise(
    call: OpCall, b: Kernel, compute: Callable[[Sequence[ArithExpr]], ArithExpr]
) -> None:
    """Emit y = compute(x_0, x_1, ...) for every element."""
    with loop_over_elements(call, b) as (values, store):
        store(compute(values))


@contextmanager
def loop_over_elements(
    call: OpCall, b: Kernel
) -> Iterator[tuple[list[ArithExpr], Callable[[ArithExpr], None]]]:
    """Open loops over all elements; yield the input values and a function that stores results."""
    sources = [b.input(index) for index in range(len(call.inputs))]
    loops = broadcast_loops([source.shape for source in sources], call.output.shape)

    def flat(
        index: int | None, buffer: tir.Buffer, name: str, access: tir.AccessMode
    ) -> tir.Buffer:
        extents = [extent for extent, moving in loops if index is None or index in moving]
        if extents and tuple(extents) == buffer.shape:
            return buffer
        window = b.view(name, buffer, 0, extents or [1], access=access)
        return stack.enter_context(window)

    with ExitStack() as stack:
        flat_sources = [flat(index, x, f"in{index}", "r") for index, x in enumerate(sources)]
        result = flat(None, b.y, "out", "w")
        at = [
            stack.enter_context(b.for_("i" if len(loops) == 1 else f"i{depth}", extent))
            for depth, (extent, _) in enumerate(loops)
        ]
        values = []
        for index, source in enumerate(flat_sources):
            place = [i for i, (_, moving) in zip(at, loops, strict=True) if index in moving]
            values.append(b.load(source, place or [0]))
        yield values, lambda value: b.store(result, at, value)


def constant_scalar(call: OpCall, index: int) -> float | None:
    """Return the value of a constant input with one element, else None."""
    constant = call.constant(index)
    if constant is None or constant.array().size != 1:
        return None
    return constant.array().reshape(-1)[0].item()  # type: ignore[no-any-return]  # numpy returns Any


def float_reference(
    call: OpCall, arrays: Sequence[Array], compute: Callable[[Array, Array], Array]
) -> tuple[Array, ...]:
    """Evaluate `compute` in float32 and clamp to the activation."""
    low, high = float_activation_range(call.str_attr("activation"))
    result = compute(arrays[0].astype(np.float32), arrays[1].astype(np.float32))
    return (np.clip(result, np.float32(low), np.float32(high)).astype(np.float32),)


def int32_reference(
    arrays: Sequence[Array], compute: Callable[[Array, Array], Array]
) -> tuple[Array, ...]:
    """Evaluate `compute` on integers, keeping the low 32 bits."""
    a, b = (array.astype(np.int64).astype(np.uint32) for array in arrays[:2])
    return (compute(a, b).astype(np.uint32).view(np.int32),)


def lower_int32(
    call: OpCall, b: Kernel, compute: Callable[[ArithExpr, ArithExpr], ArithExpr]
) -> None:
    """Emit `compute` on wrapping 32-bit integers."""
    lower_elementwise(call, b, lambda x: compute(x[0].cast(UINT32), x[1].cast(UINT32)).cast(INT32))


def tflite_importer(name: str) -> Callable[[ImportContext], ImportedCall]:

    def imported(context: ImportContext) -> ImportedCall:
        require_tensors(context, 2)
        option = context.node.options["fused_activation_function"]
        if context.outputs[0].dtype == INT16 and context.node.options.get("pot_scale_int16"):
            raise NotSupportedError("int16 with power-of-two scales")
        return ImportedCall(name, {"activation": import_activation(option)}, (0, 1))

    return imported
