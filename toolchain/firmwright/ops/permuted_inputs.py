"""Inputs of expressions read through an axis permutation, so that a transpose needs no copy.

The attribute `perms` of `expression` and `reduction` has a permutation for each input: axis i of
the expression's operand is axis perm[i] of the tensor. Without it inputs are read in storage order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel

Permutation = tuple[int, ...]


def has_permuted_inputs(call: OpCall) -> bool:
    return "perms" in call.attrs


def input_permutations(call: OpCall) -> list[Permutation]:
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if not has_permuted_inputs(call):
        return [tuple(range(len(kind.shape))) for kind in kinds]
    attribute = call.attrs["perms"]
    if not isinstance(attribute, tuple) or len(attribute) != len(kinds):
        raise NotSupportedError(f"{len(kinds)} inputs with the permutations {attribute!r}")
    permutations: list[Permutation] = []
    for perm, kind in zip(attribute, kinds, strict=True):
        if not isinstance(perm, tuple) or sorted(perm) != list(range(len(kind.shape))):
            raise NotSupportedError(f"the permutation {perm!r} of {len(kind.shape)} dimensions")
        permutations.append(tuple(int(axis) for axis in perm))  # type: ignore[arg-type]  # they are
    return permutations


def permuted_shapes(call: OpCall) -> list[tuple[int, ...]]:
    return [
        tuple(call.input(index).shape[axis] for axis in perm)
        for index, perm in enumerate(input_permutations(call))
    ]


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
    """Load the element of permuted `source` at `index`, of which the last axes are the operand's.

    The result has `rank` axes; an axis of length 1 is broadcast.
    """
    first = rank - len(perm)
    position: list[ArithExpr | int] = [0] * len(perm)
    for axis, source_axis in enumerate(perm):
        if source.shape[source_axis] > 1:
            position[source_axis] = index[first + axis]
    return b.load(source, position)


@contextmanager
def permuted_elements(
    call: OpCall, b: Kernel
) -> Iterator[tuple[list[ArithExpr], Callable[[ArithExpr], None]]]:
    """Like `elementwise.loop_over_elements`, but with one loop for each axis of the result."""
    shape = call.output.shape
    index: dict[int, ArithExpr | int] = {}
    with ExitStack() as stack:
        for axis, n in enumerate(shape):
            index[axis] = stack.enter_context(b.for_(f"i{axis}", n)) if n > 1 else 0
        values = [
            load_element(b, b.input(number), perm, index, len(shape))
            for number, perm in enumerate(input_permutations(call))
        ]
        yield values, lambda value: b.store(b.y, [index[k] for k in range(len(shape))], value)
