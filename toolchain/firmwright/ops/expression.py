"""expression: a formula over broadcast inputs; reduction: one reduced over axes.

Attributes: `formula` (expression_language.py); a reduction adds `step` (add, mul, min,
max; for bools `and`, `or`), `axes` of the broadcast shape, and `keep_dims`. For
example, `a * b` with `add`, inputs [m, k, 1] and [1, k, n] and axes [1] is a matrix
product. With `perms`, axis i of operand k is axis perms[k][i] of input k (decision
0038).

Each operation rounds to its element type, so results are bit-exact except for libm
functions. Float sums run in axis order from the neutral element.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product

import numpy as np

from firmwright.base.dtypes import BOOL, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.values import ExpressionAttrs, ReductionAttrs
from firmwright.ir.tir.builder import ArithExpr, ExprLike, binary_expr, minimum
from firmwright.ops.elementwise import ElementLoop, broadcast_shape, loop_over_elements
from firmwright.ops.expression_language import (
    INPUT_NAMES,
    TirAlgebra,
    evaluate,
    evaluate_in_numpy,
    lower_expression,
    result_dtype,
)
from firmwright.ops.integer_arithmetic import wrapped_expr
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef, RowWindow
from firmwright.ops.reductions import output_index, reduced_shape
from firmwright.ops.row_windows import elementwise_row_window

Permutation = tuple[int, ...]


def has_permuted_inputs(call: OpCall) -> bool:
    return bool(call.attributes(ExpressionAttrs).perms)


def input_permutations(call: OpCall) -> list[Permutation]:
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if not has_permuted_inputs(call):
        return [tuple(range(len(kind.shape))) for kind in kinds]
    perms = call.attributes(ExpressionAttrs).perms
    if len(perms) != len(kinds):
        raise NotSupportedError(f"{len(kinds)} inputs with the permutations {perms!r}")
    for perm, kind in zip(perms, kinds, strict=True):
        if sorted(perm) != list(range(len(kind.shape))):
            raise NotSupportedError(
                f"the permutation {perm!r} of {len(kind.shape)} dimensions"
            )
    return list(perms)


def permuted_arrays(call: OpCall, arrays: Sequence[Array]) -> list[Array]:
    perms = input_permutations(call)
    return [array.transpose(perm) for array, perm in zip(arrays, perms, strict=True)]


def load_element(
    b: Kernel,
    source: tir.Buffer,
    perm: Permutation,
    index: Mapping[int, ArithExpr | int],
    rank: int,
) -> ArithExpr:
    """Load the element of `source`, permuted by `perm`, that broadcasts to `index`.

    The result has `rank` axes, the last of which align with the operand's.
    """
    first = rank - len(perm)
    position: list[ArithExpr | int] = [0] * len(perm)
    for axis, source_axis in enumerate(perm):
        if source.shape[source_axis] > 1:
            position[source_axis] = index[first + axis]
    return b.load(source, position)


@contextmanager
def permuted_elements(b: Kernel) -> Iterator[ElementLoop]:
    """Like `elementwise.loop_over_elements`, but with a loop for each result axis."""
    shape = b.y.shape
    index: dict[int, ArithExpr | int] = {}
    with ExitStack() as stack:
        for axis, n in enumerate(shape):
            index[axis] = stack.enter_context(b.for_(f"i{axis}", n)) if n > 1 else 0
        values: list[ArithExpr] = []
        for number, perm in enumerate(input_permutations(b.call)):
            values.append(load_element(b, b.input(number), perm, index, len(shape)))
        at = list(index.values())
        yield values, lambda value: b.store(b.y, at, value)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if len(kinds) > len(INPUT_NAMES):
        raise NotSupportedError(f"an expression with {len(kinds)} inputs")
    shape: tuple[int, ...] = ()
    for kind, perm in zip(kinds, input_permutations(call), strict=True):
        shape = broadcast_shape(shape, tuple(kind.shape[axis] for axis in perm))
    variables: list[ArithExpr] = []
    for name, kind in zip(INPUT_NAMES, kinds, strict=False):
        variables.append(ArithExpr(tir.Var(name, kind.dtype)))
    dtype = result_dtype(call.attributes(ExpressionAttrs).formula, variables)
    return (TensorType(shape, dtype, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(ExpressionAttrs)
    permuted = permuted_arrays(call, arrays)
    result = evaluate_in_numpy(attrs.formula, permuted).astype(call.output.dtype.np)
    return (np.array(np.broadcast_to(result, call.output.shape)),)


def lower(call: OpCall, b: Kernel) -> None:
    loop = permuted_elements if has_permuted_inputs(call) else loop_over_elements
    with loop(b) as (values, store):
        store(lower_expression(b, call.attributes(ExpressionAttrs).formula, values))


def row_window(call: OpCall) -> RowWindow | None:
    """Return the row window, or None if an input is permuted."""
    return None if has_permuted_inputs(call) else elementwise_row_window(call)


_STEPS: Mapping[str, tuple[tir.BinaryOp, np.ufunc]] = {
    "add": ("add", np.add),
    "mul": ("mul", np.multiply),
    "min": ("min", np.fmin),
    "max": ("max", np.fmax),
    "and": ("and", np.logical_and),
    "or": ("or", np.logical_or),
}


def _neutral_element(step: str, kind: DType) -> float:
    match step:
        case "add" | "or":
            return 0
        case "mul" | "and":
            return 1
        case "max":
            return float("-inf") if kind.is_float else kind.min
    return float("inf") if kind.is_float else kind.max


def _step(
    op: tir.BinaryOp, acc: ArithExpr, value: ExprLike, *, fits: bool
) -> ArithExpr:
    """Return `acc` with one more value; extremes pass over NaN.

    With `fits`, no sum of all values is beyond the type.
    """
    if op in ("min", "max"):
        return binary_expr(op, value, acc)
    return binary_expr(op, acc, value) if fits else wrapped_expr(op, acc, value)


def unreduced_type(call: OpCall) -> TensorType:
    return infer(call)[0]


def infer_reduction(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(ReductionAttrs)
    unreduced = unreduced_type(call)
    axes = attrs.axes
    step = attrs.step
    if step not in _STEPS or (unreduced.dtype == BOOL) != (step in ("and", "or")):
        raise NotSupportedError(f"{unreduced.dtype.name} reduced by {step!r}")
    rank = len(unreduced.shape)
    if not all(0 <= axis < rank for axis in axes):
        raise NotSupportedError(f"axes {list(axes)} of {rank} dimensions")
    shape = reduced_shape(unreduced.shape, axes, attrs.keep_dims)
    return (TensorType(shape, unreduced.dtype),)


def reference_reduction(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return the reduced values; floats are computed in double."""
    attrs = call.attributes(ReductionAttrs)
    unreduced = unreduced_type(call)
    permuted = permuted_arrays(call, arrays)
    computed = evaluate_in_numpy(attrs.formula, permuted)
    values = np.broadcast_to(computed, unreduced.shape)
    if unreduced.dtype.is_float:
        values = values.astype(np.float64)
    _, step = _STEPS[attrs.step]
    start = _neutral_element(attrs.step, unreduced.dtype)
    with np.errstate(all="ignore"):
        reduced = np.asarray(step.reduce(values, axis=attrs.axes, initial=start))
        narrow = reduced.astype(unreduced.dtype.np)
        return (narrow.reshape(call.output.shape),)


def lower_reduction(call: OpCall, b: Kernel) -> None:
    lower_in_blocks(call, b, {})


def lower_in_blocks(call: OpCall, b: Kernel, sizes: Mapping[int, int]) -> None:
    """Emit a block of sums at a time; an operand is loaded once per block.

    `sizes` are the block's extents by axis.

    The last block of an axis overlaps its predecessor.
    """
    attrs = call.attributes(ReductionAttrs)
    kind, (step, _) = unreduced_type(call), _STEPS[attrs.step]
    terms = math.prod(kind.shape[axis] for axis in attrs.axes)
    places: list[dict[int, int]] = []
    for offsets in product(*map(range, sizes.values())):
        places.append(dict(zip(sizes, offsets, strict=True)))
    index: dict[int, ArithExpr | int] = {}
    with ExitStack() as outer:
        for axis, n in enumerate(kind.shape):
            if axis not in attrs.axes:
                block = _block(b, axis, n, sizes.get(axis, 1))
                index[axis] = outer.enter_context(block)
        start = _neutral_element(attrs.step, kind.dtype)
        acc = [b.register("acc", kind.dtype, start) for _ in places]
        with ExitStack() as inner:
            for axis in attrs.axes:
                n = kind.shape[axis]
                index[axis] = inner.enter_context(b.for_(f"k{axis}", n)) if n > 1 else 0
            loads: dict[tuple[int, tir.Expr], ArithExpr] = {}
            for register, place in zip(acc, places, strict=True):
                values, at = [], _moved(index, place)
                for number, perm in enumerate(input_permutations(call)):
                    element = load_element(b, b.input(number), perm, at, len(at))
                    key = number, element.expr
                    if key not in loads:
                        loads[key] = b.let(INPUT_NAMES[number], element)
                    values.append(loads[key])
                algebra = TirAlgebra(b.let)
                value = evaluate(attrs.formula, values, algebra)
                fits = step == "add" and algebra.sums_fit(value, kind.dtype, terms)
                register.set(_step(step, register.value, value, fits=fits))
        for register, place in zip(acc, places, strict=True):
            b.store(b.y, output_index(attrs, _moved(index, place)), register.value)


@contextmanager
def _block(b: Kernel, axis: int, n: int, size: int) -> Iterator[ArithExpr | int]:
    if n == 1:
        yield 0
        return
    with b.for_(f"i{axis}", divide_up(n, size)) as i:
        yield i if size == 1 else b.let("first", minimum(i * size, n - size))


def _moved(
    index: Mapping[int, ArithExpr | int], place: Mapping[int, int]
) -> dict[int, ArithExpr | int]:
    moved: dict[int, ArithExpr | int] = {}
    for axis, i in index.items():
        moved[axis] = i + place[axis] if place.get(axis) else i
    return moved


def _reduction_macs(call: OpCall) -> int:
    """Return the number of summed products; 0 for other reductions."""
    attrs = call.attributes(ReductionAttrs)
    if (attrs.formula, attrs.step) != ("a * b", "add"):
        return 0
    return unreduced_type(call).elements


OPDEFS: tuple[OpDef, ...] = (
    OpDef("expression", infer, reference, lower, row_access=row_window),
    OpDef(
        "reduction",
        infer_reduction,
        reference_reduction,
        lower_reduction,
        macs=_reduction_macs,
    ),
)
