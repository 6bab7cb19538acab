"""Inputs of formulas that are read with their axes in another order.

The attribute `perms` of `expression` and `reduction` has a permutation for each input: axis i of
what the formula sees is axis perm[i] of the tensor. So a transposition in front of a formula needs
no copy. Without the attribute every input is seen as it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array, NotSupportedError, OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel

Permutation = tuple[int, ...]


def has_permuted_inputs(call: OpCall) -> bool:
    """Whether any input is seen otherwise than it lies."""
    return "perms" in call.attrs


def input_permutations(call: OpCall) -> list[Permutation]:
    """The permutation of each input."""
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if not has_permuted_inputs(call):
        return [tuple(range(len(kind.shape))) for kind in kinds]
    given = call.attrs["perms"]
    if not isinstance(given, tuple) or len(given) != len(kinds):
        raise NotSupportedError(f"{len(kinds)} inputs turned by {given!r}")
    found: list[Permutation] = []
    for perm, kind in zip(given, kinds, strict=True):
        if not isinstance(perm, tuple) or sorted(perm) != list(range(len(kind.shape))):
            raise NotSupportedError(f"axes {perm!r} of {len(kind.shape)} dimensions")
        found.append(tuple(int(axis) for axis in perm))  # type: ignore[arg-type]  # they are
    return found


def permuted_shapes(call: OpCall) -> list[tuple[int, ...]]:
    """The inputs' shapes as the formula sees them."""
    return [
        tuple(call.input(index).shape[axis] for axis in perm)
        for index, perm in enumerate(input_permutations(call))
    ]


def permuted_arrays(call: OpCall, arrays: Sequence[Array]) -> list[Array]:
    """The inputs as the formula sees them."""
    perms = input_permutations(call)
    return [array.transpose(perm) for array, perm in zip(arrays, perms, strict=True)]


def load_element(
    b: Kernel,
    source: tir.Buffer,
    perm: Permutation,
    index: Mapping[int, ArithExpr | int],
    rank: int,
) -> ArithExpr:
    """The element at `index` of what is seen, of `rank` axes; an axis of one is always at 0."""
    first = rank - len(perm)
    place: list[ArithExpr | int] = [0] * len(perm)
    for axis, own in enumerate(perm):
        if source.shape[own] > 1:
            place[own] = index[first + axis]
    return b.load(source, place)


@contextmanager
def permuted_elements(
    call: OpCall, b: Kernel
) -> Iterator[tuple[list[ArithExpr], Callable[[ArithExpr], None]]]:
    """As `elementwise.elements`, with a loop for each axis of the result."""
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
