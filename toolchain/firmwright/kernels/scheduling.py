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
from collections.abc import Iterator, Sequence
from dataclasses import replace

from firmwright.base.errors import InternalError
from firmwright.kernels.advancing_pointers import advance_pointers
from firmwright.kernels.isa.instruction import InstructionSet, RegisterClass
from firmwright.kernels.program import (
    Address,
    Argument,
    CountedLoop,
    Lane,
    Loop,
    Node,
    PointerOperand,
    Program,
    Repeat,
    Step,
    VirtualRegister,
)
from firmwright.kernels.register_files import RegisterFile
from firmwright.kernels.registers import assign_registers
from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.cycle_model import repeated_cycles
from firmwright.targets.disassembly import Instruction, decode_instruction

TRIES = 600
"""Moves that a search tries."""
_SEED = 1
_SPACED = 100
"""The distance between the numbers of registers, which have room for groups."""
_LETTERS = {RegisterClass.FLOAT: "s", RegisterClass.VECTOR: "q"}


def repeated_block(program: Program) -> Repeat | Loop:
    """Return the innermost block of a program; InternalError if there is none."""
    for block in _blocks(program.body):
        return block
    raise InternalError(f"{program.name} repeats nothing")


def _blocks(nodes: Sequence[Node]) -> Iterator[Repeat | Loop]:
    for node in nodes:
        if isinstance(node, CountedLoop):
            yield from _blocks(node.body)
        elif isinstance(node, Repeat | Loop):
            yield node


def block_cycles(program: Program, timing: CoreTiming) -> float:
    """Return the modeled cycles of one of many repetitions of the innermost block.

    In a loop, pointers advance as in its assembly. What closes the loop is not counted.
    """
    return _costs(program, [timing])[0]


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
    instructions = _decoded(_emitted(repeated_block(program)))
    return [repeated_cycles(timing, instructions) for timing in timings]


def _emitted(block: Repeat | Loop) -> Sequence[Step]:
    if isinstance(block, Loop) and block.can_advance:
        return advance_pointers(block)
    return block.body


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


def _decoded(body: Sequence[Step]) -> list[Instruction]:
    """Return instructions with a register for each value, as if there were enough."""
    numbers: dict[VirtualRegister | PointerOperand, int] = {}
    decoded = []
    for step in body:
        is_arm = _is_arm(step.instr.instruction_set)
        words: dict[str, str] = {}
        places = (*step.instr.operands, *step.instr.results)
        for place, given in zip(places, (*step.operands, *step.results), strict=True):
            words[place.name] = _argument_text(given, numbers, is_arm=is_arm)
        for line in step.instr.asm.format(**words).split("\n\t"):
            decoded.append(decode_instruction(line, is_arm=is_arm))
    return decoded


def _is_arm(instruction_set: InstructionSet) -> bool:
    return not instruction_set.name.startswith("rv")


def _argument_text(
    given: Argument,
    numbers: dict[VirtualRegister | PointerOperand, int],
    *,
    is_arm: bool,
) -> str:
    letter = "r" if is_arm else "t"
    match given:
        case VirtualRegister(place):
            first = numbers.setdefault(given, _SPACED * (len(numbers) + 1))
            letter = _LETTERS.get(place.kind, letter)
            if place.kind is RegisterClass.FLOAT and place.lanes > 1:
                return f"{letter}{first}-{letter}{first + place.lanes - 1}"
            return f"{letter}{first}"
        case Lane(group, index):
            first = numbers.setdefault(group, _SPACED * (len(numbers) + 1))
            return f"{_LETTERS.get(group.place.kind, letter)}{first + index.offset}"
        case Address(pointer):
            base = (
                f"{letter}{numbers.setdefault(pointer, _SPACED * (len(numbers) + 1))}"
            )
            if not is_arm:
                return f"{given.offset_bytes}({base})"
            if given.advance:
                return f"[{base}], #{given.advance_bytes}"
            return f"[{base}, #{given.offset_bytes}]"
        case int():
            return str(given)
