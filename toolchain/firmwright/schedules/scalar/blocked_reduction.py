"""Reductions of several operands, such as matrix products: a block of outputs in registers.

A block spans axes along which an operand does not move, so each of its elements is loaded once for
several outputs. The last block of an axis overlaps its predecessor. Sums run in the order of the
default loops.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product

from firmwright.base.dtypes import FLOAT32, DType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, minimum
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops import expression
from firmwright.ops.expression_language import TirAlgebra, evaluate
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.reductions import output_index

_FEATURES = {4: frozenset({"fpu"}), 2: frozenset({"offsets"})}
"""The features that blocks of so many outputs along an axis require."""
_UNROLL = (2,)
_TIME_MAX = 0.9


def _is_supported(dtype: DType, size: int) -> bool:
    return (dtype == FLOAT32) == (size == 4) and dtype.size_bytes <= 4


def _moving_axes(op: OpCall) -> list[set[int]]:
    """Return for each operand the axes of the unreduced shape along which it moves."""
    rank = len(expression.unreduced_type(op).shape)
    perms = expression.input_permutations(op)
    return [
        {rank - len(perm) + k for k, axis in enumerate(perm) if op.input(number).shape[axis] > 1}
        for number, perm in enumerate(perms)
    ]


def _block_axes(op: OpCall) -> list[int]:
    """Return up to two output axes, each with an operand that does not move along it."""
    moving, shape = _moving_axes(op), expression.unreduced_type(op).shape
    shared = [
        axis
        for axis, n in enumerate(shape)
        if n > 1 and axis not in op.ints_attr("axes") and any(axis not in axes for axes in moving)
    ]
    return shared[-2:]


def _configs(size: int, op: OpCall) -> Sequence[Config]:
    is_fit = _is_supported(expression.unreduced_type(op).dtype, size)
    return [{"size": size}] if is_fit and _block_axes(op) else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    shape, axes = expression.unreduced_type(op).shape, op.ints_attr("axes")
    sizes = {axis: min(int(config["size"]), shape[axis]) for axis in _block_axes(op)}
    with Nest() as enter:
        first: dict[int, ArithExpr | int] = {}
        for axis, n in enumerate(shape):
            if axis in axes or n == 1:
                first[axis] = 0
                continue
            size = sizes.get(axis, 1)
            start = enter(b.for_(f"i{axis}", -(-n // size))) * size
            first[axis] = b.let("at", minimum(start, n - size)) if n % size else start
        places = [dict(zip(sizes, at, strict=True)) for at in product(*map(range, sizes.values()))]
        _reduce_block(op, b, first, places)


def _reduce_block(
    op: OpCall, b: Kernel, first: Mapping[int, ArithExpr | int], places: Sequence[dict[int, int]]
) -> None:
    """Compute the outputs at `first` plus each of `places`, both by axis."""
    kind, step = expression.unreduced_type(op), op.str_attr("step")
    acc = b.reg("acc", kind.dtype, len(places))
    for number in range(len(places)):
        b.store(acc, [number], expression.neutral_element(step, kind.dtype))
    with Nest() as enter:
        index = dict(first)
        for axis in op.ints_attr("axes"):
            if kind.shape[axis] > 1:
                is_last = axis == op.ints_attr("axes")[-1]
                factors = _UNROLL if is_last else ()
                index[axis] = enter(b.unrolled(f"k{axis}", kind.shape[axis], *factors))
        load = _shared_loads(op, b, index)
        for number, place in enumerate(places):
            value = evaluate(op.str_attr("formula"), load(place), TirAlgebra(b.let))
            total = binary_expr(expression.STEPS[step][0], b.load(acc, [number]), value)
            b.store(acc, [number], total)
    for number, place in enumerate(places):
        at = {axis: i + place.get(axis, 0) for axis, i in first.items()}
        b.store(b.y, output_index(op, at), b.load(acc, [number]))


def _shared_loads(
    op: OpCall, b: Kernel, index: Mapping[int, ArithExpr | int]
) -> Callable[[Mapping[int, int]], list[ArithExpr]]:
    """Return a function that gives the operands of a place, each element loaded once."""
    moving, perms = _moving_axes(op), expression.input_permutations(op)
    loaded: dict[tuple[int, ...], ArithExpr] = {}

    def load(place: Mapping[int, int]) -> list[ArithExpr]:
        values = []
        for number, (axes, perm) in enumerate(zip(moving, perms, strict=True)):
            key = (number, *(at if axis in axes else 0 for axis, at in place.items()))
            if key not in loaded:
                at = {axis: i + place.get(axis, 0) for axis, i in index.items()}
                element = expression.load_element(b, b.input(number), perm, at, len(index))
                loaded[key] = b.let(f"x{number}", element)
            values.append(loaded[key])
        return values

    return load


SCHEDULES = tuple(
    Schedule(
        f"scalar.reduction.{size}x{size}", "reduction", features, partial(_configs, size), _build,
        disable_scheduling=True, time_max=_TIME_MAX,
    )
    for size, features in _FEATURES.items()
)  # fmt: skip
