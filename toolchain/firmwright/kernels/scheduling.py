"""The order of a program's instructions, by the pipeline model of a core.

Programs are written in an order that is good for the cores that execute them, and keep
it. `find_order` searches for a better one, among those with the same results: it moves
one instruction at a time to another place between those that it depends on and those
that depend on it,

    ldrd   u, v            (u and v are defined)
    smlad  c2, u, p        ^
    sxtb16 e, u            | the product of v can be anywhere here
    smlad  c6, v, p        |
    smlad  c0, e, p        v
    sxtb16 v, v

and keeps orders that are not slower. Sums may be added in any order that a single
accumulator keeps, so results are equal to the bit, also those of floats.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from firmwright.base.errors import InternalError
from firmwright.kernels.program import (
    Address,
    Argument,
    CountedLoop,
    Lane,
    Loop,
    Node,
    Program,
    Repeat,
    Step,
    VirtualRegister,
)
from firmwright.kernels.program_cycles import block_assembly, repeated_block
from firmwright.kernels.register_files import RegisterFile
from firmwright.kernels.registers import assign_registers
from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.cycle_model import repeated_cycles

TRIES = 600
"""Moves that a search tries."""
_SEED = 1


def find_order(
    program: Program,
    timings: Sequence[CoreTiming],
    file: RegisterFile,
    tries: int = TRIES,
) -> Program:
    """Return the program with its innermost block in the best order that was found.

    With several cores, no order counts that is slower on one of them. Nor does one that
    needs more registers than `file` has, or a loop's limit in memory where it was not.
    The search is deterministic.
    """
    generator = random.Random(_SEED)
    scratch = assign_registers(program, file).scratch
    best = current = program
    best_cost = cost = limits = _costs(program, timings)
    for _ in range(tries):
        block = repeated_block(current)
        moved = _with_body(current, block, _move(block.body, generator))
        try:
            if assign_registers(moved, file).scratch != scratch:
                continue
            found = _costs(moved, timings)
        except InternalError:  # too few registers, or a pointer that cannot advance
            continue
        if any(cycles > most for cycles, most in zip(found, limits, strict=True)):
            continue
        if sum(found) <= sum(cost):
            current, cost = moved, found
        if sum(found) < sum(best_cost):
            best, best_cost = moved, found
    return best


def _costs(program: Program, timings: Sequence[CoreTiming]) -> list[float]:
    instructions = block_assembly(repeated_block(program)).decode()
    return [repeated_cycles(timing, instructions) for timing in timings]


def _with_body(
    program: Program, block: Repeat | Loop, body: tuple[Step, ...]
) -> Program:
    def changed(nodes: Sequence[Node]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            if isinstance(node, CountedLoop):
                node = replace(node, body=changed(node.body))
            elif node is block:
                node = replace(block, body=body)
            result.append(node)
        return tuple(result)

    return replace(program, body=changed(program.body))


def _move(body: tuple[Step, ...], generator: random.Random) -> tuple[Step, ...]:
    """Return `body` with a step at another place that its dependences allow."""
    place = generator.randrange(len(body))
    step = body[place]
    first = last = place
    while first > 0 and not depends(step, body[first - 1]):
        first -= 1
    while last + 1 < len(body) and not depends(body[last + 1], step):
        last += 1
    target = generator.randint(first, last)
    others = body[:place] + body[place + 1 :]
    return (*others[:target], step, *others[target:])


def depends(later: Step, earlier: Step) -> bool:
    """Return whether `later` must stay after `earlier`."""
    read, written = _values(later.operands), _values(later.results)
    before_read, before_written = _values(earlier.operands), _values(earlier.results)
    if read & before_written or written & (before_written | before_read):
        return True
    return any(
        _conflict(one, other, later, earlier)
        for one in _addresses(later)
        for other in _addresses(earlier)
    )


def _conflict(one: Address, other: Address, later: Step, earlier: Step) -> bool:
    """Return whether two accesses have an order: one writes, or moves the pointer."""
    if one in later.results or other in earlier.results:
        return True
    return one.pointer == other.pointer and bool(one.advance or other.advance)


def _values(given: Sequence[Argument]) -> set[VirtualRegister]:
    values = (item.group if isinstance(item, Lane) else item for item in given)
    return {item for item in values if isinstance(item, VirtualRegister)}


def _addresses(step: Step) -> list[Address]:
    return [x for x in (*step.operands, *step.results) if isinstance(x, Address)]
