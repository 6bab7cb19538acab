"""What elementwise operators share: broadcasting, the loops, import, cases.

Shapes are right-aligned; an axis of size 1 is repeated (numpy's rule and TFLite's). Loops are as
few as the shapes allow: neighbouring axes that every input repeats, or does not, alike are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    CaseTensor,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    OpCall,
)
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.importing import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    float_activation_range,
    import_activation,
    tensor_quant,
)

DTYPES = ("int8", "int16", "int32", "float32")


def broadcast_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of an elementwise result."""
    rank = max(len(a), len(b))
    shape: list[int] = []
    for left, right in zip(_aligned(a, rank), _aligned(b, rank), strict=True):
        if left != right and 1 not in (left, right):
            raise NotSupportedError(f"shapes {list(a)} and {list(b)} do not fit each other")
        shape.append(right if left == 1 else left)
    return tuple(shape)


def _aligned(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    """Both inputs and the output of one dtype; int8, int16 quantised per tensor, int16 around 0.

    int32 are plain numbers, of which the low 32 bits are kept.
    """
    a, b, y = call.input(0), call.input(1), call.output
    if a.dtype not in (INT8, INT16, INT32, FLOAT32) or (b.dtype, y.dtype) != (a.dtype, a.dtype):
        raise NotSupportedError(f"{a.dtype.name} and {b.dtype.name} giving {y.dtype.name}")
    if a.dtype == INT32 and call.str_attr("activation") != "none":
        raise NotSupportedError("whole numbers with an activation")
    if a.dtype in (INT8, INT16):
        for kind in (a, b, y):
            if tensor_quant(kind).zero_point and a.dtype == INT16:
                raise NotSupportedError("int16 with a zero point other than 0")
    return (TensorType(broadcast_shape(a.shape, b.shape), a.dtype, y.quantization),)


def broadcast_loops(
    shapes: Sequence[Sequence[int]], y_shape: Sequence[int]
) -> list[tuple[int, set[int]]]:
    """The loops: extent, and the positions of the inputs that advance in it."""
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
    """y = compute(x_0, x_1, ...) for every element, each x in its own dtype."""
    with loop_over_elements(call, b) as (values, store):
        store(compute(values))


@contextmanager
def loop_over_elements(
    call: OpCall, b: Kernel
) -> Iterator[tuple[list[ArithExpr], Callable[[ArithExpr], None]]]:
    """The loops over all elements: the inputs' values, and what stores a result."""
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
    """The value of a constant input of one element, which lowerings fold."""
    constant = call.constant(index)
    if constant is None or constant.array().size != 1:
        return None
    return constant.array().reshape(-1)[0].item()  # type: ignore[no-any-return]  # numpy says Any


def float_reference(
    call: OpCall, arrays: Sequence[Array], compute: Callable[[Array, Array], Array]
) -> tuple[Array, ...]:
    """`compute` in float32, cut to the activation: the only rounding is its own."""
    low, high = float_activation_range(call.str_attr("activation"))
    result = compute(arrays[0].astype(np.float32), arrays[1].astype(np.float32))
    return (np.clip(result, np.float32(low), np.float32(high)).astype(np.float32),)


def int32_reference(
    arrays: Sequence[Array], compute: Callable[[Array, Array], Array]
) -> tuple[Array, ...]:
    """`compute` of whole numbers; the low 32 bits."""
    a, b = (array.astype(np.int64).astype(np.uint32) for array in arrays[:2])
    return (compute(a, b).astype(np.uint32).view(np.int32),)


def lower_int32(
    call: OpCall, b: Kernel, compute: Callable[[ArithExpr, ArithExpr], ArithExpr]
) -> None:
    """The same, in TIR."""
    lower_elementwise(call, b, lambda x: compute(x[0].cast(UINT32), x[1].cast(UINT32)).cast(INT32))


def tflite_importer(name: str) -> Callable[[ImportContext], ImportedCall]:
    """The importer of the operator `name`."""

    def imported(context: ImportContext) -> ImportedCall:
        require_tensors(context, 2)
        option = context.node.options["fused_activation_function"]
        if context.outputs[0].dtype == INT16 and context.node.options.get("pot_scale_int16"):
            raise NotSupportedError("int16 by the rules for scales that are powers of two")
        return ImportedCall(name, {"activation": import_activation(option)}, (0, 1))

    return imported


# ---- conformance cases -------------------------------------------------------------------------

_CASES = (
    # name, shapes, scales and zero points (a, b, y), activation, b constant
    ("same_scales", (1, 4, 3), (1, 4, 3), (0.05, 0.05, 0.1), (-3, 5, 2), "NONE", False),
    ("tail", (1, 37), (1, 37), (0.031, 0.0071, 0.04), (-128, -128, -128), "RELU", False),
    ("far_scales", (5, 7), (5, 7), (3.0, 0.0004, 2.5), (127, -128, 0), "NONE", False),
    ("rows", (2, 3, 5), (5,), (0.02, 0.5, 0.3), (10, -20, 30), "RELU6", False),
    ("columns", (4, 1, 3), (1, 6, 1), (0.02, 0.03, 0.06), (0, 0, -1), "RELU_N1_TO_1", False),
    ("constant", (1, 2, 3, 4), (4,), (0.1, 0.01, 0.09), (-7, 0, 7), "NONE", True),
    ("ties", (16, 1), (1, 16), (0.5, 0.25, 1.0), (0, 1, -2), "NONE", False),
    ("scalar", (3, 3), (1,), (0.011, 0.013, 0.02), (12, -128, -128), "RELU", True),
)


def binary_cases(
    builtin: str, y_scale: Callable[[float, float, float], float]
) -> Iterator[ConformanceCase]:
    """The grid in both dtypes; `y_scale` gives the output's scale from the row's three."""
    for index, row in enumerate(_CASES):
        name, a_shape, b_shape, scales, zero_points, activation, constant = row
        rng = np.random.Generator(np.random.PCG64([index, 7]))
        options = {"fused_activation_function": activation}
        y_shape = broadcast_shape(a_shape, b_shape)
        exact = [float(np.float32(s)) for s in (*scales[:2], y_scale(*scales))]
        data = rng.integers(-128, 128, b_shape).astype(np.int8) if constant else None
        a, b, y = (
            CaseTensor(shape, "int8", (scale,), (zero_point,), None, values)
            for shape, scale, zero_point, values in zip(
                (a_shape, b_shape, y_shape), exact, zero_points, (None, data, None), strict=True
            )
        )
        yield ConformanceCase(f"{name}_int8", builtin, (a, b), (y,), options)
        if index % 2 == 0:
            yield _int16_case(builtin, row, exact)
        real = rng.normal(size=b_shape).astype(np.float32) if constant else None
        a, b, y = (
            CaseTensor(shape, "float32", data=values)
            for shape, values in ((a_shape, None), (b_shape, real), (y_shape, None))
        )
        yield ConformanceCase(f"{name}_float32", builtin, (a, b), (y,), options)
        if name in ("same_scales", "columns"):
            a, b, y = (CaseTensor(tensor.shape, "int32") for tensor in (a, b, y))
            yield ConformanceCase(f"{name}_int32", builtin, (a, b), (y,), {**options, **_PLAIN})


_PLAIN: dict[str, object] = {"fused_activation_function": "NONE"}


def _int16_case(builtin: str, row: tuple, scales: Sequence[float]) -> ConformanceCase:  # type: ignore[type-arg]  # a table row
    name, a_shape, b_shape, _, _, activation, constant = row
    rng = np.random.Generator(np.random.PCG64(len(name)))
    options: dict[str, object] = {"fused_activation_function": activation}
    if builtin != "MUL":
        options["pot_scale_int16"] = False
    data = rng.integers(-32768, 32768, b_shape).astype(np.int16) if constant else None
    down = 2.0**-7 if builtin != "MUL" else 2.0**-5
    shapes = (a_shape, b_shape, broadcast_shape(a_shape, b_shape))
    a, b, y = (
        CaseTensor(shape, "int16", (scale * down,), (0,), None, values)
        for shape, scale, values in zip(shapes, scales, (None, data, None), strict=True)
    )
    return ConformanceCase(f"{name}_int16", builtin, (a, b), (y,), options)
