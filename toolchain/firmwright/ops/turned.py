"""Inputs of formulas that are read with their axes in another order.

The attribute `perms` of `expression` and `reduction` has a permutation for each input: axis i of
what the formula sees is axis perm[i] of the tensor. So a transposition in front of a formula needs
no copy. Without the attribute every input is seen as it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from firmwright.ir.graph.opdef import Array, NotSupportedError, OpCall
from firmwright.ir.tir.builder import E
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.kernel import Kernel

Perm = tuple[int, ...]


def is_turned(call: OpCall) -> bool:
    """Whether any input is seen otherwise than it lies."""
    return "perms" in call.attrs


def perms_of(call: OpCall) -> list[Perm]:
    """The permutation of each input."""
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if not is_turned(call):
        return [tuple(range(len(kind.shape))) for kind in kinds]
    given = call.attrs["perms"]
    if not isinstance(given, tuple) or len(given) != len(kinds):
        raise NotSupportedError(f"{len(kinds)} inputs turned by {given!r}")
    found: list[Perm] = []
    for perm, kind in zip(given, kinds, strict=True):
        if not isinstance(perm, tuple) or sorted(perm) != list(range(len(kind.shape))):
            raise NotSupportedError(f"axes {perm!r} of {len(kind.shape)} dimensions")
        found.append(tuple(int(axis) for axis in perm))  # type: ignore[arg-type]  # they are
    return found


def turned_shapes(call: OpCall) -> list[tuple[int, ...]]:
    """The inputs' shapes as the formula sees them."""
    return [
        tuple(call.input(index).shape[axis] for axis in perm)
        for index, perm in enumerate(perms_of(call))
    ]


def turned_arrays(call: OpCall, arrays: Sequence[Array]) -> list[Array]:
    """The inputs as the formula sees them."""
    perms = perms_of(call)
    return [array.transpose(perm) for array, perm in zip(arrays, perms, strict=True)]


def element(b: Kernel, source: Buffer, perm: Perm, index: Mapping[int, E | int], rank: int) -> E:
    """The element at `index` of what is seen, of `rank` axes; an axis of one is always at 0."""
    first = rank - len(perm)
    place: list[E | int] = [0] * len(perm)
    for axis, own in enumerate(perm):
        if source.shape[own] > 1:
            place[own] = index[first + axis]
    return b.load(source, place)


@contextmanager
def turned_elements(call: OpCall, b: Kernel) -> Iterator[tuple[list[E], Callable[[E], None]]]:
    """As `elementwise.elements`, with a loop for each axis of the result."""
    shape = call.output.shape
    index: dict[int, E | int] = {}
    with ExitStack() as stack:
        for axis, n in enumerate(shape):
            index[axis] = stack.enter_context(b.for_(f"i{axis}", n)) if n > 1 else 0
        values = [
            element(b, b.input(number), perm, index, len(shape))
            for number, perm in enumerate(perms_of(call))
        ]
        yield values, lambda value: b.store(b.y, [index[k] for k in range(len(shape))], value)
