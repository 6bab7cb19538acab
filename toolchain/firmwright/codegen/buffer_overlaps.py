"""Comments on kernels whose output overlaps their input.

The memory plan places an output over an input that dies at the same call, as far as the
order of the kernel's reads and writes allows. The C of such a kernel is correct only in
this order, and `restrict` would be wrong. Its comment therefore gives the distance of
the two pointers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.grouping import group_pairs
from firmwright.ir import tir
from firmwright.ir.tir.traversal import prim_calls, statements

OVERLAP_NOTE = (
    (
        "Overlap: the memory plan places an output over an input that is not needed "
        "afterwards,"
    ),
    (
        "as far as the order of the kernel's reads and writes allows. Where a kernel's "
        "comment says"
    ),
    (
        "that one pointer overlaps another, do not reorder its loops and do not add "
        "restrict."
    ),
)
"""The explanation that precedes the kernels of a file in which any overlap."""

_READ_ROLES = ("in", "inout")
_WRITTEN_ROLES = ("out", "inout", "scratch")


@dataclass(frozen=True, slots=True)
class _PoolRange:
    """The bytes [start, end) of a pool; arguments that are not `exact` lie inside."""

    pool: str
    start: int
    end: int
    exact: bool = True

    def overlaps(self, other: "_PoolRange") -> bool:
        if self.pool != other.pool:
            return False
        return self.start < other.end and other.start < self.end

    def part(self, pointer: tir.AccessPtr) -> "_PoolRange":
        """Return the range of a pointer into a buffer at this range."""
        if not isinstance(pointer.offset, tir.IntImm):
            return replace(self, exact=False)
        step = pointer.buffer.dtype.size_bytes
        start = self.start + pointer.offset.value * step
        return replace(self, start=start, end=start + pointer.extent * step)


@dataclass(frozen=True, slots=True)
class _Overlap:
    """A written and a read parameter of a kernel, by position, with common memory.

    `distance` is the written address minus the read one in bytes, or None if it varies
    between the iterations of a loop around the call.
    """

    written: int
    read: int
    distance: int | None


class OverlapComments:
    """The overlaps of all calls of an AOT main with fixed pool offsets."""

    __slots__ = ("_calls",)

    def __init__(self, main: tir.PrimFunc, kernels: Mapping[str, tir.PrimFunc]) -> None:
        ranges = _pool_ranges(main)
        self._calls: dict[str, list[tuple[_Overlap, int]]] = {}
        for call in prim_calls(main.body):
            kernel = kernels.get(call.callee)
            if kernel is None:
                continue
            # Several calls may share one C function, each with buffers at other places:
            # the comment of the function has all of them.
            for overlap in _overlaps(kernel.params, call.args, ranges):
                self._calls.setdefault(kernel.code, []).append((overlap, call.op))

    def __bool__(self) -> bool:
        return bool(self._calls)

    def lines(self, function: tir.PrimFunc) -> Iterator[str]:
        """Yield the comment lines of the C function that implements `function`."""
        found: dict[tuple[int, int], list[tuple[int | None, int]]] = {}
        for overlap, op in self._calls.get(function.code, ()):
            key = (overlap.written, overlap.read)
            found.setdefault(key, []).append((overlap.distance, op))
        for (written, read), distances in found.items():
            output, source = function.params[written].name, function.params[read].name
            yield (
                f"{output} overlaps {source} and starts {_distances(distances)}: "
                "do not reorder, do not add restrict"
            )


def _pool_ranges(main: tir.PrimFunc) -> dict[str, _PoolRange]:
    """Return the ranges of the pools of `main` and of all buffers declared in them."""
    ranges: dict[str, _PoolRange] = {}
    for param in main.params:
        if param.role == "pool" and isinstance(param.value, tir.Buffer):
            ranges[param.name] = _PoolRange(param.name, 0, param.value.size_bytes)
    for node in statements(main.body):
        if isinstance(node, tir.DeclBuffer) and node.source.buffer.name in ranges:
            ranges[node.buffer.name] = ranges[node.source.buffer.name].part(node.source)
    return ranges


def _overlaps(
    params: Sequence[tir.Param],
    args: Sequence[tir.Expr],
    ranges: Mapping[str, _PoolRange],
) -> Iterator[_Overlap]:
    places: dict[int, _PoolRange] = {}
    for position, arg in enumerate(args):
        if isinstance(arg, tir.AccessPtr) and arg.buffer.name in ranges:
            places[position] = ranges[arg.buffer.name].part(arg)
    for written, target in places.items():
        if params[written].role not in _WRITTEN_ROLES:
            continue
        for read, source in places.items():
            is_read = written != read and params[read].role in _READ_ROLES
            if is_read and target.overlaps(source):
                # Distance -64: y is written below x, over what has been read already.
                #
                #     y |------------------|
                #     x     |----------------|
                is_fixed = target.exact and source.exact
                distance = target.start - source.start if is_fixed else None
                yield _Overlap(written, read, distance)


def _distances(calls: Sequence[tuple[int | None, int]]) -> str:
    """Describe the distances of the calls, each with its operator's index."""
    operators = group_pairs(calls)
    if len(operators) == 1:
        return _distance(*operators)
    described: list[str] = []
    for distance, numbers in operators.items():
        described.append(f"{_distance(distance)} ({_operators(numbers)})")
    return " or ".join(described)


def _distance(distance: int | None) -> str:
    match distance:
        case None:
            return "at a varying distance from it"
        case 0:
            return "at the same address"
        case _:
            unit = "byte" if abs(distance) == 1 else "bytes"
            side = "before" if distance < 0 else "after"
            return f"{abs(distance)} {unit} {side} it"


def _operators(numbers: Iterable[int]) -> str:
    listed = sorted({number for number in numbers if number >= 0})
    if not listed:
        return "in a copy"
    word = "operators" if len(listed) > 1 else "operator"
    return f"{word} {', '.join(map(str, listed))}"
