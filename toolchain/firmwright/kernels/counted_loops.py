"""Counted loops of programs: their nodes, and the instructions they execute."""

from collections.abc import Iterator, Mapping, Sequence

from firmwright.base.errors import InternalError
from firmwright.kernels.predication import vpt_blocks
from firmwright.kernels.program import (
    Beginning,
    CountedLoop,
    Loop,
    Move,
    Node,
    Program,
    Repeat,
    Step,
)

LOOP_END = 2
"""The instructions that close an iteration, besides those of low-overhead loops."""


def moves(body: Sequence[Node]) -> Iterator[Move]:
    for node in body:
        match node:
            case Move():
                yield node
            case Beginning(first, others):
                yield from moves((*first, *others))
            case CountedLoop():
                yield from moves(node.body)


def counted_loops(body: Sequence[Node]) -> Iterator[CountedLoop]:
    """Yield loops, and those inside of them afterwards."""
    for node in body:
        if isinstance(node, CountedLoop):
            yield node
            yield from counted_loops(node.body)


def count_executed(
    program: Program, counts: Mapping[str, int], loop_end: int = LOOP_END
) -> int:
    """Return the instructions that a program executes.

    `counts` are the iterations of its loops, by the name of their counter. `loop_end`
    is 1 in low-overhead loops.
    """
    return _count(program.body, counts, loop_end)


def _count(body: Sequence[Node], counts: Mapping[str, int], loop_end: int) -> int:
    total = 0
    for block_size, node in vpt_blocks(body):
        total += block_size > 0
        match node:
            case Step() | Move():
                total += 1
            case Repeat(count=count, body=inner):
                total += count * _count(inner, counts, loop_end)
            case CountedLoop(_, counter, _, inner):
                iteration = _count(inner, counts, loop_end) + loop_end
                is_set = node.has_own_counter or loop_end < LOOP_END
                total += is_set + counts[counter] * iteration
                if isinstance(inner[0], Beginning):
                    total += _count_beginning(inner[0], counts[counter], counts)
            case Beginning():
                continue  # counted by its loop
            case Loop():
                raise InternalError("a loop until an address is not counted here")
    return total


def _count_beginning(
    beginning: Beginning, iterations: int, counts: Mapping[str, int]
) -> int:
    """Return the instructions of all iterations, with the jump over the others."""
    first = _count(beginning.first, counts, LOOP_END) + 1
    others = _count(beginning.others, counts, LOOP_END)
    return first + (iterations - 1) * others
