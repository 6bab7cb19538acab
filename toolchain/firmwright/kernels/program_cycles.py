"""Modeled cycles of programs, from the pipelines of cores.

A block is priced as one of many repetitions of itself, and what closes an iteration of
a loop by what it adds to one. Both follow from the assembly of one repetition, which
micro-kernels of any number of steps share.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from firmwright.base.errors import InternalError
from firmwright.kernels.advancing_pointers import advance_pointers
from firmwright.kernels.assembly import ProgramForms, loop_end
from firmwright.kernels.isa.instruction import RegisterClass
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
from firmwright.targets.core_timing import CoreTiming, core_timings
from firmwright.targets.cycle_model import repeated_cycles
from firmwright.targets.disassembly import (
    AssemblySyntax,
    Instruction,
    decode_instruction,
)

_SPACED = 100
"""The distance between the numbers of registers, which have room for groups."""
_LETTERS = {RegisterClass.FLOAT: "s", RegisterClass.VECTOR: "q"}
_PLACEHOLDER = re.compile(r"%\[(\w+)\]")
_MACRO_PARAMETER = re.compile(r'\*?" #\w+ "')
_ACCESS = re.compile("ldr|str")


@dataclass(frozen=True, slots=True)
class BlockAssembly:
    """The assembly of a block, with a register for each value, as if there were enough.

    Equal blocks have equal assembly.
    """

    lines: tuple[str, ...]
    syntax: AssemblySyntax

    def decode(self) -> list[Instruction]:
        return [decode_instruction(line, self.syntax) for line in self.lines]

    def then(self, lines: Sequence[str]) -> "BlockAssembly":
        return BlockAssembly((*self.lines, *lines), self.syntax)


@dataclass(frozen=True, slots=True)
class _Registers:
    """The numbers of registers: of values, and of pointers by their names."""

    syntax: AssemblySyntax
    numbers: dict[VirtualRegister | str, int] = field(default_factory=dict)

    @property
    def letter(self) -> str:
        return "r" if self.syntax is AssemblySyntax.ARM else "t"

    def number(self, key: VirtualRegister | str) -> int:
        return self.numbers.setdefault(key, _SPACED * (len(self.numbers) + 1))

    def line(self, step: Step) -> list[str]:
        """Return the instructions of a step."""
        words: dict[str, str] = {}
        places = (*step.instr.operands, *step.instr.results)
        for place, given in zip(places, (*step.operands, *step.results), strict=True):
            words[place.name] = self.argument(given)
        return step.instr.asm.format(**words).split("\n\t")

    def argument(self, given: Argument) -> str:
        match given:
            case VirtualRegister(place):
                first = self.number(given)
                letter = _LETTERS.get(place.kind, self.letter)
                if place.kind is RegisterClass.FLOAT and place.lanes > 1:
                    return f"{letter}{first}-{letter}{first + place.lanes - 1}"
                return f"{letter}{first}"
            case Lane(group, index):
                letter = _LETTERS.get(group.place.kind, self.letter)
                return f"{letter}{self.number(group) + index.offset}"
            case Address(pointer):
                base = f"{self.letter}{self.number(pointer.name)}"
                if self.syntax is not AssemblySyntax.ARM:
                    return f"{given.offset_bytes}({base})"
                if given.advance:
                    return f"[{base}], #{given.advance_bytes}"
                return f"[{base}, #{given.offset_bytes}]"
            case int():
                return str(given)

    def closing_line(self, line: str) -> str:
        """Return a line that closes a loop, with registers for the asm operands."""
        text = _MACRO_PARAMETER.sub("", line)
        if _ACCESS.match(text):  # of the limit, which is in memory
            return _PLACEHOLDER.sub("[sp]", text)
        return _PLACEHOLDER.sub(lambda m: f"{self.letter}{self.number(m[1])}", text)


def executed_cycles(forms: ProgramForms, core: str, repetitions: int = 0) -> float:
    """Return the modeled cycles of a micro-kernel on a core with a timing table.

    `repetitions` are those of its loop, if it has one.
    """
    program = forms.fpu or forms.wide
    total, others = 0.0, list[Step]()
    for node in program.body:
        match node:
            case Step():
                others.append(node)
            case Repeat(count=times):
                total += times * _cycles(block_assembly(node), core)
            case Loop(unroll=unroll):
                block, closed = _loop_assembly(node, tuple(loop_end(forms)))
                each = _cycles(block, core)
                closing = _cycles(closed, core) - each + core_timings()[core].refill
                total += repetitions * each + repetitions // unroll * closing
            case _:
                raise InternalError(f"{program.name} has the loops of a statement")
    if others:
        total += _cycles(_assembly(others), core)
    return total


@cache
def _cycles(block: BlockAssembly, core: str) -> float:
    return repeated_cycles(core_timings()[core], block.decode())


def block_cycles(program: Program, timing: CoreTiming) -> float:
    """Return the modeled cycles of one of many repetitions of the innermost block.

    In a loop, pointers advance as in its assembly. What closes the loop is not counted.
    """
    return repeated_cycles(timing, block_assembly(repeated_block(program)).decode())


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


def block_assembly(block: Repeat | Loop) -> BlockAssembly:
    """Return the assembly of one repetition; in a loop, pointers advance."""
    return _assembly(_repeated_steps(block))


def _repeated_steps(block: Repeat | Loop) -> Sequence[Step]:
    if isinstance(block, Loop) and block.can_advance:
        return advance_pointers(block)
    return block.body


def _assembly(body: Sequence[Step]) -> BlockAssembly:
    return _with_closing(body, ())[0]


def _loop_assembly(
    loop: Loop, closing: Sequence[str]
) -> tuple[BlockAssembly, BlockAssembly]:
    """Return the assembly of one repetition, and with what closes an iteration."""
    return _with_closing(_repeated_steps(loop), closing)


def _with_closing(
    body: Sequence[Step], closing: Sequence[str]
) -> tuple[BlockAssembly, BlockAssembly]:
    registers = _Registers(body[0].instr.instruction_set.syntax)
    lines = [line for step in body for line in registers.line(step)]
    block = BlockAssembly(tuple(lines), registers.syntax)
    return block, block.then([registers.closing_line(line) for line in closing])
