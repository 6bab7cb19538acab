"""Programs as inline assembly: one statement, with loops inside it.

Pointers and counters are operands, which the instructions change. Temporaries have
registers by name, which are clobbered; the compiler chooses those of named registers.

A loop counts down. If its first iteration begins differently, it jumps over the
beginning of the others:

        mov  counter, count
        (first)
        b    3f
    2:  (others)
    3:  (body)
        subs counter, #1
        bne  2b

A low-overhead loop counts in the link register, from DLS to LE.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.errors import InternalError
from firmwright.kernels.assembly import CONSTRAINTS, string_lines
from firmwright.kernels.assembly_text import AssemblyText, addresses
from firmwright.kernels.counted_loops import counted_loops, moves
from firmwright.kernels.isa.instruction import RegisterClass
from firmwright.kernels.predication import vpst, vpt_blocks
from firmwright.kernels.program import (
    Address,
    Beginning,
    CountedLoop,
    Index,
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
from firmwright.kernels.register_files import PREDICATE, RegisterFile

_LINE_COLUMNS = 92


def statement_text(program: Program, file: RegisterFile) -> str:
    """Return a statement in C of the operands of a program.

    It clobbers all registers of `file`, so that compilers choose the same sums for
    programs that use fewer. The predicate register has no name for that.
    """
    assembly = AssemblyText(program, file)
    lines = _Lines(assembly)
    lines.add(program.body)
    loops = list(counted_loops(program.body))
    counted = [] if file.loop_register else loops
    counters = [loop.counter for loop in counted if loop.has_own_counter]
    locals_ = _local_pointers(program)
    text = [f"int32_t {counter};" for counter in counters]
    text += [f"{pointer.declaration};" for pointer in locals_]
    chosen = _chosen(assembly)
    text += [f"{value.place.dtype.c_type} {value.name};" for value in chosen]
    text += ["__asm__ volatile(", *lines.lines]
    outputs = _outputs(program, locals_)
    if not file.marks_early_results:
        outputs = [output.replace("&", "") for output in outputs]
    outputs += _counters(counted)
    outputs += [f'[{value.name}] "=&r"({value.name})' for value in chosen]
    text += wrap_assembly("    : ", outputs)
    text += wrap_assembly("    : ", _inputs(program, loops, file))
    every = [name for names in file.registers.values() for name in names]
    clobbers = [f'"{name}"' for name in every if name != PREDICATE]
    clobbers += [f'"{file.loop_register}"'] * bool(file.loop_register)
    clobbers += ['"cc"'] * bool(counted) + ['"memory"']
    text += wrap_assembly("    : ", clobbers, ");")
    return "\n".join(text)


def _chosen(assembly: AssemblyText) -> list[VirtualRegister]:
    """Return the named temporaries whose core registers the compiler chooses."""
    given = (item for step in steps(assembly.program.body) for item in step.results)
    found = []
    for item in dict.fromkeys(given):
        if (
            isinstance(item, VirtualRegister)
            and item.is_local
            and item.place.lanes == 1
        ):
            found.append(item)
    return [value for value in found if value not in assembly.assigned.registers]


def wrap_assembly(head: str, items: Sequence[str], end: str = "") -> list[str]:
    """Return lines of limited length: `head`, the items and commas, and `end`."""
    lines, line = [], head
    for index, item in enumerate(items):
        part = item + ("," if index < len(items) - 1 else end)
        if len(line) + len(part) > _LINE_COLUMNS:
            lines.append(line.rstrip())
            line = " " * len(head)
        line += part + " "
    return [*lines, line.rstrip()]


def _local_pointers(program: Program) -> list[PointerOperand]:
    """Return the pointers that are no operands, but set by the program."""
    found = [move.pointer for move in moves(program.body)]
    return [each for each in dict.fromkeys(found) if each not in program.pointers]


@dataclass(slots=True)
class _Lines:
    """The lines of assembly, with a label for each place of a jump."""

    assembly: AssemblyText
    lines: list[str] = field(default_factory=list)
    labels: int = 0

    def add(self, body: Sequence[Node]) -> None:
        for size, node in vpt_blocks(body):
            if size:
                self._write(vpst(size))
            match node:
                case Step():
                    self._write(self.assembly.step(node))
                case Move():
                    self._write(_format_move(node))
                case CountedLoop():
                    self._add_loop(node)
                case Repeat(count, steps, start):
                    for repetition in range(start, start + count):
                        self.add([_repeated(step, repetition) for step in steps])
                case Beginning() | Loop():
                    raise InternalError("a statement has no place for this block")

    def _write(self, *operations: str) -> None:
        self.lines += string_lines(operations)

    def _add_low_overhead_loop(self, loop: CountedLoop) -> None:
        """Add a loop whose end takes one instruction."""
        register = self.assembly.file.loop_register
        label = self.labels = self.labels + 1
        count = _count_name(loop) if loop.has_own_counter else loop.counter
        self._write(f"dls {register}, %[{count}]", f"{label}:")
        self.add(loop.body)
        self._write(f"le {register}, {label}b")

    def _add_loop(self, loop: CountedLoop) -> None:
        if self.assembly.file.loop_register:
            self._add_low_overhead_loop(loop)
            return
        if loop.has_own_counter:
            self._write(f"mov %[{loop.counter}], %[{_count_name(loop)}]")
        start, *others = loop.body
        label = self.labels = self.labels + 1
        if isinstance(start, Beginning):
            self.labels += 1
            self.add(start.first)
            self._write(f"b {label + 1}f", f"{label}:")
            self.add(start.others)
            self._write(f"{label + 1}:")
            self.add(others)
        else:
            self._write(f"{label}:")
            self.add(loop.body)
        self._write(f"subs %[{loop.counter}], #1", f"bne {label}b")


def _repeated(step: Step, repetition: int) -> Step:
    """Return a step in one repetition of its block."""

    def placed(address: Address) -> Address:
        at = address.index
        index = Index(0, at.stride * repetition + at.offset, at.distance)
        return replace(address, index=index)

    operands = (placed(x) if isinstance(x, Address) else x for x in step.operands)
    results = (placed(x) if isinstance(x, Address) else x for x in step.results)
    return replace(step, operands=tuple(operands), results=tuple(results))


def _format_move(move: Move) -> str:
    to, base = f"%[{move.pointer.name}]", f"%[{move.base.name}]"
    return f"add {to}, {base}, %[{move.distance}]"


def _count_name(loop: CountedLoop) -> str:
    return f"all_{loop.counter}"


def _outputs(program: Program, locals_: Sequence[PointerOperand]) -> list[str]:
    written = program.written
    outputs = []
    for value in program.registers:
        if value in program.results:
            access = "=" if value.name in written else "+"
            kind = CONSTRAINTS[value.place.kind]
            outputs.append(f'[{value.name}] "{access}&{kind}"({value.name})')
    changed = [(item, "+") for item in _moved(program)]
    changed += [(item, "=") for item in locals_]
    for pointer, access in changed:
        kind = CONSTRAINTS[_base(program, pointer)]
        outputs.append(f'[{pointer.name}] "{access}&{kind}"({pointer.name})')
    return outputs


def _counters(loops: Sequence[CountedLoop]) -> list[str]:
    outputs = []
    for loop in loops:
        access = "=" if loop.has_own_counter else "+"
        outputs.append(f'[{loop.counter}] "{access}&r"({loop.counter})')
    return outputs


def _moved(program: Program) -> list[PointerOperand]:
    """Return the operands that are pointers which advance."""
    moved = {move.pointer for move in moves(program.body)}
    moved |= {item.pointer for item in addresses(program) if item.advance}
    return [pointer for pointer in program.pointers if pointer in moved]


def _base(program: Program, pointer: PointerOperand) -> RegisterClass:
    """Return the class of a pointer: LOW if some access has no other base."""
    found = {RegisterClass.CORE}
    for step in steps(program.body):
        memory, given = step.instr.memory, (*step.operands, *step.results)
        places = [item for item in given if isinstance(item, Address)]
        if memory and any(place.pointer == pointer for place in places):
            found.add(memory.base)
    return RegisterClass.LOW if RegisterClass.LOW in found else RegisterClass.CORE


def _inputs(
    program: Program, loops: Sequence[CountedLoop], file: RegisterFile
) -> list[str]:
    inputs = []
    moved = _moved(program)
    for pointer in program.pointers:
        if pointer not in moved:
            kind = CONSTRAINTS[_base(program, pointer)]
            inputs.append(f'[{pointer.name}] "{kind}"({pointer.name})')
    for value in program.registers:
        if value not in program.results:
            kind = CONSTRAINTS[value.place.kind]
            inputs.append(f'[{value.name}] "{kind}"({value.name})')
    for move in moves(program.body):
        size = move.pointer.dtype.size_bytes
        times = f"{size} * " if size > 1 else ""
        inputs.append(f'[{move.distance}] "rI"({times}{move.distance})')
    for loop in loops:
        if loop.has_own_counter:
            inputs.append(f'[{_count_name(loop)}] "rI"({loop.count})')
        elif file.loop_register:
            inputs.append(f'[{loop.counter}] "r"({loop.counter})')
    return list(dict.fromkeys(inputs))
