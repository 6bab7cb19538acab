"""Shape and loops of operators that reduce a tensor along some axes.

Attributes: `axes` (increasing, counted from 0) and `keep_dims` (reduced axes remain with length 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keep_dims: bool) -> tuple[int, ...]:
    return tuple(
        1 if axis in axes else length
        for axis, length in enumerate(shape)
        if keep_dims or axis not in axes
    )


def output_index(call: OpCall, index: Mapping[int, ArithExpr | int]) -> list[ArithExpr | int]:
    axes, keep_dims = call.ints_attr("axes"), bool(call.int_attr("keep_dims"))
    return [
        0 if axis in axes else index[axis]
        for axis in range(len(index))
        if keep_dims or axis not in axes
    ]


def lower_reduction(
    call: OpCall,
    b: Kernel,
    start: ArithExpr,
    step: Callable[[ArithExpr, ArithExpr], ArithExpr],
    finish: Callable[[ArithExpr], ArithExpr],
) -> None:
    """Emit, for each output, loops that fold the elements into `start` by `step`, then `finish`."""
    x, axes = call.input(0), call.ints_attr("axes")
    index: dict[int, ArithExpr | int] = {}
    with ExitStack() as outer:
        for axis, length in enumerate(x.shape):
            if axis not in axes:
                index[axis] = outer.enter_context(b.for_(f"i{axis}", length))
        acc = b.reg("acc", start.expr.dtype)
        b.store(acc, [0], start)
        with ExitStack() as inner:
            for axis in axes:
                index[axis] = inner.enter_context(b.for_(f"k{axis}", x.shape[axis]))
            item = b.load(b.input(0), [index[axis] for axis in range(len(x.shape))])
            b.store(acc, [0], step(b.load(acc, [0]), item))
        b.store(b.y, output_index(call, index), finish(b.load(acc, [0])))
