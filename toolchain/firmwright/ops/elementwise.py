"""Broadcasting, loops and definitions of elementwise operators.

Broadcasting is that of numpy. Adjacent axes with the same broadcasting in all inputs
become one loop.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from firmwright.base.dtypes import INT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import ArithExpr, as_expr, select
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import DefinedIn, OpDef
from firmwright.ops.requantize import ArrayOrExpr, check_zero_points, per_tensor_quant
from firmwright.ops.row_windows import elementwise_row_window

ElementLoop = tuple[list[ArithExpr], Callable[[ArithExpr], None]]
"""The input values at one element, and the function that stores the result."""


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


def broadcast_loops(
    shapes: Sequence[Sequence[int]], y_shape: Sequence[int]
) -> list[tuple[int, set[int]]]:
    """Return each loop's extent and the indices of the inputs that advance in it."""
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
    b: Kernel, compute: Callable[[Sequence[ArithExpr]], ArithExpr]
) -> None:
    """Emit y = compute(x_0, x_1, ...) for every element."""
    with loop_over_elements(b) as (values, store):
        store(compute(values))


@contextmanager
def loop_over_elements(
    b: Kernel, *factors: int, sources: Sequence[tir.Buffer] | None = None
) -> Iterator[ElementLoop]:
    """Open loops over all elements; yield input values and a function to store one.

    The innermost loop is unrolled by the first of `factors` that divides its extent.
    `sources` replace the inputs.
    """
    sources = sources or [b.input(index) for index in range(len(b.call.inputs))]
    loops = broadcast_loops([source.shape for source in sources], b.y.shape)

    def flat(
        extents: Sequence[int], x: tir.Buffer, name: str, access: tir.AccessMode
    ) -> tir.Buffer:
        if extents and tuple(extents) == x.shape:
            return x
        return b.view(name, x, 0, extents or [1], access=access)

    with ExitStack() as stack:
        flat_sources: list[tir.Buffer] = []
        for index, x in enumerate(sources):
            extents = [extent for extent, moving in loops if index in moving]
            flat_sources.append(flat(extents, x, f"in{index}", "r"))
        result = flat([extent for extent, _ in loops], b.y, "out", "w")
        at: list[ArithExpr] = []
        for depth, (extent, _) in enumerate(loops[:-1]):
            at.append(stack.enter_context(b.for_(f"i{depth}", extent)))
        name = "i" if len(loops) == 1 else f"i{len(loops) - 1}"
        extent = loops[-1][0]
        last = b.unrolled(name, extent, *factors) if factors else b.for_(name, extent)
        at.append(stack.enter_context(last))
        values: list[ArithExpr] = []
        for index, source in enumerate(flat_sources):
            place: list[ArithExpr | int] = []
            for i, (_, moving) in zip(at, loops, strict=True):
                if index in moving:
                    place.append(i)
            values.append(b.load(source, place or [0]))
        yield values, lambda value: b.store(result, at, value)


def constant_scalar(call: OpCall, index: int) -> float | None:
    """Return the value of a constant input with one element, else None."""
    constant = call.constant(index)
    if constant is None or constant.array().size != 1:
        return None
    value: float = constant.array().reshape(-1)[0].item()
    return value


@dataclass(frozen=True, slots=True)
class ElementwiseKernel:
    """Reference (of all inputs), lowering and checks of an operator for one type."""

    reference: Callable[..., Array]
    lower: Callable[[OpCall, Kernel], None]
    check: Callable[[OpCall], None] = lambda call: None


def by_profile(litert: ElementwiseKernel, tflm: ElementwiseKernel) -> ElementwiseKernel:
    """Implement a dtype that LiteRT and TFLM compute differently."""

    def chosen(call: OpCall) -> ElementwiseKernel:
        return tflm if call.numerics == "tflm" else litert

    return ElementwiseKernel(
        lambda call, *arrays: chosen(call).reference(call, *arrays),
        lambda call, b: chosen(call).lower(call, b),
        lambda call: chosen(call).check(call),
    )


def compute_elements(
    reference: Callable[..., Array],
    value: Callable[..., ArithExpr],
    check: Callable[[OpCall], None] = lambda call: None,
) -> ElementwiseKernel:
    """Implement a dtype by `value(call, *elements)`, which has the output dtype."""

    def lower(call: OpCall, b: Kernel) -> None:
        lower_elementwise(b, lambda x: value(call, *x))

    return ElementwiseKernel(reference, lower, check)


def compute_float32(
    exact: Callable[[Array], Array], value: Callable[[ArithExpr], ArithExpr]
) -> ElementwiseKernel:
    """Implement float32: `exact` is the reference in double, `value` the kernel's."""

    def reference(call: OpCall, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(exact(x.astype(np.float64))).astype(np.float32)

    return compute_elements(reference, lambda call, x: value(x))


def subtract_zero_points(call: OpCall, *values: ArrayOrExpr) -> tuple[ArrayOrExpr, ...]:
    """Subtract inputs' zero points from arrays (as int64) or expressions (int32)."""
    differences: list[ArrayOrExpr] = []
    for index, x in enumerate(values):
        zero_point = per_tensor_quant(call.input(index)).zero_point
        if isinstance(x, ArithExpr):
            differences.append(x.cast(INT32) - zero_point)
        else:
            differences.append(x.astype(np.int64) - zero_point)
    return tuple(differences)


def choose(condition: ArrayOrExpr, a: ArrayOrExpr, b: ArrayOrExpr) -> ArrayOrExpr:
    """Return `a` where the condition holds, else `b`: int32 expressions or arrays."""
    if isinstance(condition, ArithExpr):
        chosen = as_expr(a, INT32)
        other = as_expr(b, INT32)
        return select(condition, ArithExpr(chosen), ArithExpr(other))
    return np.where(condition, a, b)


def check_per_tensor(call: OpCall) -> None:
    """Raise NotSupportedError unless all tensors have one scale."""
    for kind in (*call.inputs, call.output):
        if kind is not None:
            per_tensor_quant(kind)


def check_symmetric_int16(call: OpCall) -> None:
    """Raise NotSupportedError unless all tensors have one scale and zero point 0."""
    check_zero_points(*(kind for kind in (*call.inputs, call.output) if kind))


def elementwise_op(
    inputs: int,
    name: str,
    numerics: DefinedIn = "both",
    result: DType | None = None,
    /,
    **kernels: ElementwiseKernel,
) -> OpDef:
    """Return an operator for the input dtypes that are keywords of `kernels`.

    The output has the input dtype unless `result` is given.
    """

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        kinds = [call.input(index) for index in range(inputs)]
        y = call.output
        kind = kinds[0].dtype
        is_uniform = {k.dtype for k in kinds} == {kind} and y.dtype == (result or kind)
        if kind.name not in kernels or not is_uniform:
            if inputs == 1:
                raise NotSupportedError(f"{kind.name} input with {y.dtype.name} output")
            names = " and ".join(k.dtype.name for k in kinds)
            raise NotSupportedError(f"{names} giving {y.dtype.name}")
        kernels[kind.name].check(call)
        shape = reduce(broadcast_shape, (k.shape for k in kinds))
        return (TensorType(shape, y.dtype, y.quantization),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        values = kernels[call.input(0).dtype.name].reference(call, *arrays)
        return (np.asarray(values, call.output.dtype.np),)

    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lambda call, b: kernels[call.input(0).dtype.name].lower(call, b),
        row_access=elementwise_row_window,
        dtypes=tuple(kernels),
        numerics=numerics,
    )


unary_op = partial(elementwise_op, 1)
binary_op = partial(elementwise_op, 2)
