"""Assignment of the values of a program to registers, by linear scan.

Pointers and the limit of a loop have registers from the beginning, temporaries from
their definition, and all until their last use. A group takes names that are adjacent in
the file. A value that was there before a loop and is used in it lives until the loop's
end:

    w start | p q  u
    |   |   | | |            the registers before the loop
    |   .   | | |            (start is not used any more)
    |       |                loop: ldr v
    |       | | |  |             sxtb16 u, v
    |       |   .  |         (v is free after its last use)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from firmwright.base.errors import InternalError
from firmwright.kernels.isa.instruction import Instr, RegisterClass, RegisterPlace
from firmwright.kernels.program import (
    Address,
    Argument,
    Beginning,
    CountedLoop,
    Lane,
    Loop,
    Move,
    Node,
    PointerOperand,
    Program,
    Repeat,
    Step,
    VirtualRegister,
    steps,
)
from firmwright.kernels.register_files import RegisterFile

Holder: TypeAlias = VirtualRegister | PointerOperand


@dataclass(frozen=True, slots=True)
class Assignment:
    """The registers of a program's pointers, limit and temporaries.

    `groups` are temporaries of several registers. `scratch` is the register of a limit
    that is in memory, when it is compared.
    """

    registers: Mapping[Holder, str]
    groups: Mapping[VirtualRegister, tuple[str, ...]]
    scratch: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    """An instruction, or the beginning of the program or the end of an iteration.

    `is_early` tells that results need other registers than the values that it uses.
    """

    text: str
    uses: tuple[Holder, ...]
    results: tuple[Holder, ...] = ()
    is_early: bool = False


def assign_registers(program: Program, file: RegisterFile) -> Assignment:
    """Return the registers of `program`, those of `file`.

    The limit of the loop is in memory if no register is left for it. Raises
    InternalError, which names the program, if it needs more registers than there are.
    """
    limit = next((n.limit for n in program.body if isinstance(n, Loop)), None)
    if limit is None or not file.places_inputs:
        return _assignment(_scan(program, file, limit, None))
    try:
        return _assignment(_scan(program, file, limit, None))
    except InternalError:
        if not file.loop_end.load:
            raise
    scratch = VirtualRegister(limit.place)
    registers = _scan(program, file, limit, scratch)
    (register,) = registers.pop(scratch)
    return replace(_assignment(registers), scratch=register)


def _assignment(found: Mapping[Holder, tuple[str, ...]]) -> Assignment:
    registers: dict[Holder, str] = {}
    groups: dict[VirtualRegister, tuple[str, ...]] = {}
    for holder, names in found.items():
        if isinstance(holder, VirtualRegister) and holder.is_group:
            groups[holder] = names
        else:
            (registers[holder],) = names
    return Assignment(registers, groups)


def _scan(
    program: Program,
    file: RegisterFile,
    limit: VirtualRegister | None,
    scratch: VirtualRegister | None,
) -> dict[Holder, tuple[str, ...]]:
    events, blocks = _events(program, limit, scratch)
    last_use = _last_uses(events, blocks)
    classes = _classes(program, file)
    placed = set(program.pointers) | ({limit} if limit else set())
    assigned: dict[Holder, tuple[str, ...]] = {}
    taken: set[str] = set()
    turns: dict[str, int] = {}
    for place, event in enumerate(events):
        ended = [x for x in event.uses if x in assigned and last_use[x] == place]
        before = {name for use in ended for name in assigned[use]}
        if not event.is_early:
            taken -= before
        for result in event.results:
            if result in assigned or (result in placed and not file.places_inputs):
                continue
            kind = classes.get(result, RegisterClass.CORE)
            if (
                kind not in file.registers
                and isinstance(result, VirtualRegister)
                and result.name
            ):
                continue
            names = file.registers[kind]
            if kind is RegisterClass.VECTOR:
                # In turn: what was just read is not written at once.
                names = tuple(sorted(names, key=lambda name: turns.get(name, 0)))
            free = _free(result, names, taken)
            if not free:
                held = _held(events, [x for x in assigned if last_use[x] > place])
                raise InternalError(
                    f"{program.name} needs more than the {len(names)} registers left, "
                    f"at step {place}, {event.text}{held}"
                )
            assigned[result] = free
            turns |= dict.fromkeys(free, place)
            taken |= {*free}
        if event.is_early:
            taken -= before
        for result in event.results:
            if last_use[result] == place and result in assigned:
                taken -= {*assigned[result]}
    return assigned


def _held(events: Sequence[_Event], holders: Sequence[Holder]) -> str:
    """Return which values registers hold, by name or by the step that made them."""
    steps = [(f"{n}, {event.text}", event) for n, event in enumerate(events)]
    texts: list[str] = []
    for holder in holders:
        made = next(text for text, event in steps if holder in event.results)
        texts.append(holder.name or f"the result of step {made}")
    return f"; held: {'; '.join(texts)}" if texts else ""


def _free(holder: Holder, names: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    """Return the first of `names` that are not taken: one, or those of a group."""
    is_group = isinstance(holder, VirtualRegister) and holder.is_group
    count = (
        holder.place.lanes if isinstance(holder, VirtualRegister) and is_group else 1
    )
    for first in range(len(names) - count + 1):
        found = tuple(names[first : first + count])
        if taken.isdisjoint(found):
            return found
    return ()


def _events(
    program: Program, limit: VirtualRegister | None, scratch: VirtualRegister | None
) -> tuple[list[_Event], list[range]]:
    """Return the events in order, and the places of those in repeated blocks."""
    limits = (limit,) if limit and not scratch else ()
    events = [_Event("the beginning", (), (*program.pointers, *limits))]
    blocks: list[range] = []

    def add(body: Sequence[Node]) -> None:
        for node in body:
            first = len(events)
            match node:
                case Step():
                    events.append(_step_event(node))
                case Move(pointer, base):
                    events.append(_Event("a move", (base, pointer)))
                case Beginning():
                    add((*node.first, *node.others))
                case Repeat() | Loop() | CountedLoop():
                    add(node.body)
                    uses: tuple[Holder, ...] = ()
                    if isinstance(node, Loop):
                        loaded = (scratch,) if scratch else ()
                        uses = (*node.pointers(), *limits, *loaded)
                        events.append(_Event("the load of its limit", (), loaded))
                    if isinstance(node, CountedLoop):
                        uses = _kept_in_loop(events, first)
                    events.append(_Event("the end of an iteration", uses))
                    blocks.append(range(first, len(events)))

    add(program.body)
    return events, blocks


def _kept_in_loop(events: Sequence[_Event], first: int) -> tuple[Holder, ...]:
    """Return the values of earlier events that a loop from event `first` on reads."""
    earlier = {result for event in events[:first] for result in event.results}
    read = (use for event in events[first:] for use in event.uses)
    return tuple(dict.fromkeys(use for use in read if use in earlier))


def _step_event(step: Step) -> _Event:
    addresses = tuple(item for item in step.results if isinstance(item, Address))
    results = tuple(_holders(item for item in step.results if item not in addresses))
    uses = tuple(_holders((*step.operands, *addresses)))
    return _Event(step.instr.name, uses, results, step.instr.has_early_results)


def _holders(given: Sequence[Argument] | Iterator[Argument]) -> Iterator[Holder]:
    for item in given:
        if isinstance(item, Address):
            yield item.pointer
        elif isinstance(item, Lane):
            yield item.group
        elif isinstance(item, VirtualRegister) and not item.is_operand:
            yield item


def _last_uses(events: Sequence[_Event], blocks: Sequence[range]) -> dict[Holder, int]:
    first: dict[Holder, int] = {}
    last: dict[Holder, int] = {}
    for place, event in enumerate(events):
        around = [block for block in blocks if place in block]
        for holder in (*event.uses, *event.results):
            begin = first.setdefault(holder, place)
            ends = [block.stop - 1 for block in around if begin < block.start]
            last[holder] = max((place, *ends))
    return last


def _classes(program: Program, file: RegisterFile) -> dict[Holder, RegisterClass]:
    """Return the class of each holder: CORE only if all of its places are."""
    classes: dict[Holder, RegisterClass] = {}
    for node in program.body:
        if isinstance(node, Loop):
            classes[node.limit] = file.inputs
    for step in steps(program.body):
        for holder, kind in _places(step.instr, step):
            if classes.get(holder, RegisterClass.CORE) is RegisterClass.CORE:
                classes[holder] = kind
    return classes | dict.fromkeys(program.pointers, file.inputs)


def _places(
    instr: Instr, step: Step
) -> Iterator[tuple[VirtualRegister, RegisterClass]]:
    places = (*instr.operands, *instr.results)
    for place, given in zip(places, (*step.operands, *step.results), strict=True):
        if isinstance(place.place, RegisterPlace) and isinstance(
            given, VirtualRegister
        ):
            yield given, place.place.kind
