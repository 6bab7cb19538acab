"""Execution of programs, on arrays of numpy or on any other kind of values.

A value is an element of memory or a lane of a register. Arrays hold one value for each
of several executions, which differ in their data only. Another kind of values, such as
expressions of a solver, needs another `evaluate`.

Memory begins where a pointer points before the program; an access outside of it is an
InternalError.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from firmwright.base.errors import InternalError
from firmwright.kernels.advancing_pointers import advance_pointers
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import (
    Address,
    Beginning,
    CountedLoop,
    Lane,
    Loop,
    Move,
    Node,
    Program,
    Repeat,
    Step,
    VirtualRegister,
)

T = TypeVar("T")
Evaluate: TypeAlias = Callable[
    [Instr, Sequence[Sequence[T] | int]], Sequence[Sequence[T]]
]
"""A function from the lanes of each operand to those of each result."""


@dataclass(frozen=True, slots=True)
class ProgramState(Generic[T]):
    """What a program reads and writes: by name, elements, lanes, and distances.

    `positions` are the elements that each pointer has advanced.
    """

    memory: dict[str, list[T]]
    registers: dict[str, tuple[T, ...]]
    positions: dict[str, int] = field(default_factory=dict)


def run_program(
    program: Program,
    evaluate: Evaluate[T],
    memory: Mapping[str, Sequence[T]],
    registers: Mapping[str, Sequence[T]],
    numbers: Mapping[str, int] | None = None,
) -> ProgramState[T]:
    """Return the state after `program`.

    `numbers` has the values of the counts of loops and of immediate operands. In loops
    pointers advance if they do so in assembly, too.
    """
    state: ProgramState[T] = ProgramState(
        {name: list(elements) for name, elements in memory.items()},
        {name: tuple(lanes) for name, lanes in registers.items()},
        {pointer.name: 0 for pointer in program.pointers},
    )
    _Execution(program, evaluate, state, numbers or {}).run(program.body)
    return state


@dataclass(frozen=True, slots=True)
class _Execution(Generic[T]):
    program: Program
    evaluate: Evaluate[T]
    state: ProgramState[T]
    numbers: Mapping[str, int]
    temporaries: dict[VirtualRegister, tuple[T, ...]] = field(default_factory=dict)

    def run(self, body: Sequence[Node]) -> None:
        for node in body:
            match node:
                case Step():
                    self._step(node, 0)
                case Repeat(count, steps, start):
                    for repetition in range(start, start + count):
                        for step in steps:
                            self._step(step, repetition)
                case Loop(count):
                    steps = advance_pointers(node) if node.can_advance else node.body
                    for repetition in range(self.numbers[count]):
                        for step in steps:
                            self._step(step, repetition)
                case Move():
                    self._move(node)
                case CountedLoop(_, counter, _, steps):
                    self._counted_loop(self.numbers[counter], steps)
                case Beginning():
                    raise InternalError("only a counted loop can begin differently")

    def _counted_loop(self, count: int, body: Sequence[Node]) -> None:
        start, *others = body
        for iteration in range(count):
            if isinstance(start, Beginning):
                self.run(start.others if iteration else start.first)
                self.run(others)
            else:
                self.run(body)

    def _move(self, move: Move) -> None:
        """Set a pointer to another element of the memory of its base."""
        name, base = move.pointer.name, move.base.name
        self.state.memory[name] = self.state.memory[base]
        place = self.state.positions[base] + self.numbers[move.distance]
        self.state.positions[name] = place

    def _step(self, step: Step, repetition: int) -> None:
        operands: list[Sequence[T] | int] = []
        for given in step.operands:
            match given:
                case VirtualRegister():
                    operands.append(self._register(given, step))
                case Lane(group, index):
                    lane = index.stride * repetition + index.offset
                    operands.append((self._register(group, step)[lane],))
                case Address():
                    place = self._place(given, repetition, step)
                    operands.append(self.state.memory[given.pointer.name][place])
                case int():
                    operands.append(given)
        results = self.evaluate(step.instr, operands)
        for target, lanes in zip(step.results, results, strict=True):
            match target:
                case VirtualRegister() if target.is_operand:
                    self.state.registers[target.name] = tuple(lanes)
                case VirtualRegister():
                    self.temporaries[target] = tuple(lanes)
                case Address():
                    place = self._place(target, repetition, step)
                    self.state.memory[target.pointer.name][place] = lanes

    def _register(self, value: VirtualRegister, step: Step) -> tuple[T, ...]:
        found = self.temporaries.get(value)
        if found is None:
            found = self.state.registers.get(value.name)
        if found is None:
            where = f"{step.instr.name} of {self.program.name}"
            raise InternalError(f"{where} reads {value.name or 'a register'} too early")
        return found

    def _place(self, address: Address, repetition: int, step: Step) -> slice:
        """Return the elements at `address`, and advance its pointer."""
        name = address.pointer.name
        memory = step.instr.memory
        if memory is None or memory.index:
            raise InternalError(f"{step.instr.name} accesses no adjacent elements")
        index, distance = address.index, address.index.distance
        first = self.state.positions[name] + index.stride * repetition + index.offset
        if distance.factor:
            first += distance.factor * self.numbers[distance.immediate]
        end = first + memory.count
        if first < 0 or end > len(self.state.memory[name]):
            where = f"{step.instr.name} of {self.program.name}"
            raise InternalError(f"{where} accesses {name}[{first}:{end}], outside")
        self.state.positions[name] += address.advance
        return slice(first, end)
