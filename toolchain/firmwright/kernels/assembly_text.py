"""The assembly of a program's steps and of its loop, with registers or asm operands."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from firmwright.base.errors import InternalError
from firmwright.kernels.isa.instruction import (
    AddressForm,
    AddressText,
    Memory,
    RegisterClass,
)
from firmwright.kernels.program import (
    Address,
    Argument,
    Index,
    Lane,
    Loop,
    Program,
    Step,
    VirtualRegister,
    steps,
)
from firmwright.kernels.register_files import RegisterFile, RegisterPlacement
from firmwright.kernels.registers import Assignment, Holder, assign_registers

GROUP_PARAMETER = "group"
"""The parameter of macros with a group that has a register for each repetition."""


@dataclass(frozen=True)
class AssemblyText:
    """The text of a program with the registers of `file`."""

    program: Program
    file: RegisterFile

    @cached_property
    def assigned(self) -> Assignment:
        return assign_registers(self.program, self.file)

    @cached_property
    def loop(self) -> Loop | None:
        loops = (node for node in self.program.body if isinstance(node, Loop))
        return next(loops, None)

    @property
    def has_variables(self) -> bool:
        return self.file.placement is RegisterPlacement.VARIABLES

    @property
    def has_limit_in_memory(self) -> bool:
        return bool(self.assigned.scratch)

    @cached_property
    def inputs(self) -> tuple[Holder, ...]:
        """The pointers, and the limit of the loop if it is in a register."""
        if self.loop is None or self.has_limit_in_memory:
            return self.program.pointers
        return (*self.program.pointers, self.loop.limit)

    @cached_property
    def temporaries(self) -> list[str]:
        """The registers of temporaries only, in the order of the file."""
        used = {*self.assigned.registers.values(), self.assigned.scratch}
        used.update(*self.assigned.groups.values())
        used -= {self.assigned.registers.get(holder) for holder in self.inputs}
        every = (name for names in self.file.registers.values() for name in names)
        return [name for name in dict.fromkeys(every) if name in used]

    @property
    def temporary_variables(self) -> dict[str, str]:
        """The C variables of temporaries, by their registers."""
        variables = self.file.variables
        return {name: variables[name] for name in self.temporaries if name in variables}

    @property
    def clobbered(self) -> list[str]:
        """The registers by name; groups that repeat take any of their class."""
        if self.repeated_groups:
            return list(self.file.registers[RegisterClass.FLOAT])
        return [name for name in self.temporaries if name not in self.file.variables]

    @property
    def distances(self) -> list[tuple[int, str]]:
        """The distances in addresses: factors, and a C expression in bytes."""
        found: dict[int, str] = {}
        for address in addresses(self.program):
            factor, name = (
                address.index.distance.factor,
                address.index.distance.immediate,
            )
            size = address.pointer.dtype.size_bytes
            if factor:
                found[factor] = f"{size} * {name}" if size > 1 else name
        return sorted(found.items())

    def variable(self, holder: Holder) -> str:
        """Return the C variable of an input."""
        register = self.assigned.registers.get(holder)
        if isinstance(holder, VirtualRegister) or register is None:
            return holder.name
        return self.file.variables.get(register, register)

    def is_shared(self, holder: Holder) -> bool:
        """Return whether an input's register is later that of a temporary."""
        register = self.assigned.registers.get(holder)
        holders = list(self.assigned.registers.values())
        is_scratch = register == self.assigned.scratch
        return register is not None and (holders.count(register) > 1 or is_scratch)

    def operand_name(self, holder: Holder) -> str:
        return self.variable(holder) if self.is_shared(holder) else holder.name

    def name(self, holder: Holder) -> str:
        """Return the register of a holder in assembly."""
        register = self.assigned.registers.get(holder)
        if register is None:
            place = holder.place if isinstance(holder, VirtualRegister) else None
            is_vector = place is not None and place.kind is RegisterClass.VECTOR
            return f"%{'q' * is_vector}[{holder.name}]"
        return self._register(register)

    def _register(self, register: str) -> str:
        for holder in self.inputs:
            if self.assigned.registers.get(holder) == register:
                if self.is_shared(holder) and not self.has_variables:
                    return register
                return f"%[{self.operand_name(holder)}]"
        return f"%[{self.file.variables[register]}]" if self.has_variables else register

    def step(self, step: Step) -> str:
        """Return the assembly of one step, a string in C if an address repeats."""
        words: dict[str, str] = {}
        places = (*step.instr.operands, *step.instr.results)
        for place, given in zip(places, (*step.operands, *step.results), strict=True):
            memory = place.place if isinstance(place.place, Memory) else None
            words[place.name] = self._argument(given, memory)
        for given in (*step.operands, *step.results):
            memory = step.instr.memory
            if isinstance(given, Address) and memory and memory.index:
                base, index = self.name(given.pointer), words[memory.index]
                lanes = AddressText(base, index=index, shift=memory.shifts[0])
                words["address"] = lanes.text(memory.form)
        return step.instr.asm.format(**words)

    def _argument(self, given: Argument, memory: Memory | None) -> str:
        match given:
            case VirtualRegister() if given in self.repeated_groups:
                return f'" #{GROUP_PARAMETER} "'
            case VirtualRegister() if given.is_group:
                return self.group_text(given)
            case VirtualRegister():
                return self.name(given)
            case Lane():
                return self._lane(given)
            case Address():
                assert memory is not None
                if memory.form is AddressForm.MULTIPLE:
                    return self._multiple(given, memory.size_bytes)
                return self._address(given, memory.form)
            case int():
                return str(given) if given < 1 << 16 else f"{given:#x}"

    def _lane(self, lane: Lane) -> str:
        """Return a register of a group.

        Where it repeats, it has the number of the repetition, as C does not compute
        text; the group then begins with register 0.
        """
        group = lane.group
        names = self.assigned.groups.get(group) or (self.assigned.registers[group],)
        if not lane.index.stride:
            return names[lane.index.offset]
        if names[0] != "s0" or lane.index != Index(1):
            raise InternalError(f"{self.program.name} cannot repeat {names[0]}")
        return 's" #i "'

    def group_text(self, group: VirtualRegister) -> str:
        """Return the registers of a group, which may be one."""
        names = self.assigned.groups.get(group) or (self.assigned.registers[group],)
        return "-".join(dict.fromkeys((names[0], names[-1])))

    @cached_property
    def repeated_groups(self) -> set[VirtualRegister]:
        """The groups with a register for each repetition, of a number in the macro."""
        operands = (item for step in steps(self.program.body) for item in step.operands)
        return {item.group for item in operands if _is_repeated(item)}

    def _multiple(self, address: Address, size_bytes: int) -> str:
        is_next = address.index == Index(0)
        if not is_next or address.advance_bytes not in (0, size_bytes):
            raise InternalError(f"{self.program.name} has a multiple access elsewhere")
        return self.name(address.pointer) + "!" * bool(address.advance)

    def _address(self, address: Address, form: AddressForm) -> str:
        base = self.name(address.pointer)
        if address.advance_bytes:
            return f"[{base}], #{address.advance_bytes}"
        factor, stride = address.index.distance.factor, address.stride_bytes
        parts = [f"%[p{factor}]"] if factor else []
        if stride:
            parts.append(product(stride, "i"))
        if address.offset_bytes:
            parts.append(str(address.offset_bytes))
        offset = "+".join(parts)
        if form is AddressForm.PARENTHESES:
            return f"{offset or 0}({base})"
        if form is AddressForm.COMMA:
            return f"{base}, {offset or 0}"
        mark = "" if factor else "#"
        return f"[{base}, {mark}{offset}]" if offset else f"[{base}]"

    def closing(self) -> list[str]:
        """Return the assembly that closes an iteration of the loop."""
        if self.loop is None:
            return []
        end, until = self.file.loop_end, self.loop.until
        scratch, memory = self.assigned.scratch, f"%[{self.loop.limit.name}]"
        limit = self._register(scratch) if scratch else self.name(self.loop.limit)
        lines = [*self._moves()]
        if scratch:
            lines.append(end.load.format(limit=limit, memory=memory))
        if until:
            pointer = self.name(until)
            lines += [x.format(pointer=pointer, limit=limit) for x in end.compare]
            return lines
        change, *others = (line.format(limit=limit) for line in end.count)
        saved = [end.save.format(limit=limit, memory=memory)] if scratch else []
        return [*lines, change, *saved, *others]

    def _moves(self) -> Iterator[str]:
        if not self.file.loop_end.move or self.loop is None:
            return
        for pointer, stride in self.loop.pointers().items():
            distance = product(stride * pointer.dtype.size_bytes, "count")
            name = self.name(pointer)
            yield self.file.loop_end.move.format(pointer=name, bytes=distance)

    def limit_text(self) -> str:
        """Return the C value of the loop's limit."""
        assert self.loop is not None
        count, until = self.loop.count, self.loop.until
        if until is None:
            return f"{count} / {self.loop.unroll}" if self.loop.unroll > 1 else count
        size = self.loop.pointers()[until]
        return f"{until.name} + {f'{size} * ' if size > 1 else ''}{count}"


def _is_repeated(given: Argument) -> TypeGuard[Lane]:
    return isinstance(given, Lane) and bool(given.index.stride)


def product(factor: int, parameter: str) -> str:
    """Return `factor` times a parameter of a macro, inside a string."""
    return f'{factor}*" #{parameter} "' if factor > 1 else f'" #{parameter} "'


def addresses(program: Program) -> Iterator[Address]:
    for step in steps(program.body):
        for given in (*step.operands, *step.results):
            if isinstance(given, Address):
                yield given
