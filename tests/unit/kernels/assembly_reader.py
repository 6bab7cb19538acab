"""Reads assembly that is written by hand as a program, by the texts of instructions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from string import Formatter

from firmwright.kernels.isa.instruction import (
    AddressForm,
    Immediate,
    Instr,
    InstructionSet,
    Memory,
    Operand,
    Register,
)
from firmwright.kernels.program import Address, Index, Pointer, Program, Step, Value

REGISTER = r"%\[\w+\]|r\d+|lr"
NUMBER = r"[-+*\w]+"
ADDRESSES = {
    AddressForm.OFFSET: rf"\[(?P<base>{REGISTER})(?:, #(?P<offset>{NUMBER}))?\]",
    AddressForm.MULTIPLE: rf"(?P<base>{REGISTER})(?P<advances>!?)",
}
SYNONYMS = {"ldmia": "ldm"}


def macros(text: str) -> list[dict[str, str]]:
    """Return the macros of each branch of the conditions in C text, by name."""
    branches: list[dict[str, str]] = [{}]
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if re.match(r"#(if|elif|else)\b", line):
            branches.append({})
        if found := re.match(r"#define (\w+)\(\w*\)(.*)", line):
            branches[-1][found[1]] = found[2]
    return [branch for branch in branches if branch]


def expanded(macro: str, argument: int) -> list[str]:
    """Return the lines of assembly that a macro of one argument is."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"|#(\w+)', macro)
    text = "".join(string or str(argument) for string, _ in parts)
    return [line for line in text.split(r"\n\t") if line]


def number(text: str) -> int:
    """Return the value of a sum of products of numbers."""
    terms = text.split("+")
    return sum(math.prod(int(each, 0) for each in term.split("*")) for term in terms)


@dataclass(frozen=True)
class AssemblyReader:
    """Reads lines that use operands `registers` and `pointers` of a kernel."""

    tables: Sequence[InstructionSet]
    registers: Sequence[str]
    pointers: Mapping[str, Pointer]
    values: dict[str, Value] = field(default_factory=dict)

    def read(self, name: str, lines: Sequence[str]) -> Program:
        steps = tuple(map(self._step, lines))
        registers = tuple(self.values[register] for register in self.registers)
        return Program(name, tuple(self.pointers.values()), registers, steps)

    def _step(self, line: str) -> Step:
        mnemonic, _, rest = line.partition(" ")
        text = f"{SYNONYMS.get(mnemonic, mnemonic)} {rest}"
        for instr in chain(*self.tables):
            if instr.is_sequence:
                continue
            found = pattern(instr).fullmatch(text)
            if found and are_permitted(instr, found):
                results = [self._given(each, found) for each in instr.results]
                operands = [self._given(each, found) for each in instr.operands]
                return Step(instr, tuple(results), tuple(operands))
        raise AssertionError(f"no table has {line}")

    def _given(self, operand: Operand, found: re.Match[str]) -> Value | Address | int:
        match operand.place:
            case Immediate():
                return number(found[operand.name])
            case Register():
                name = found[operand.name].strip("%[]")
                is_local = name not in self.registers
                value = Value(operand.place, name, is_local)
                return self.values.setdefault(name, value)
            case Memory(dtype, count):
                parts = found.groupdict()
                pointer = self.pointers[parts["base"].strip("%[]")]
                at = number(parts.get("offset") or "0") // dtype.size_bytes
                advance = count if parts.get("advances") else 0
                return Address(pointer, Index(0, at), advance)


@cache
def pattern(instr: Instr) -> re.Pattern[str]:
    """Return the regular expression of an instruction's text."""
    places = {each.name: each.place for each in (*instr.operands, *instr.results)}
    text = ""
    for literal, name, _, _ in Formatter().parse(instr.asm):
        text += re.escape(literal)
        match places.get(name or ""):
            case Register():
                text += rf"(?P<{name}>{REGISTER})"
            case Immediate():
                text += rf"(?P<{name}>{NUMBER})"
            case Memory() as memory:
                text += ADDRESSES.get(memory.form, "(?!)")
    return re.compile(text)


def are_permitted(instr: Instr, found: re.Match[str]) -> bool:
    return all(
        number(found[operand.name]) in operand.place.values
        for operand in instr.operands
        if isinstance(operand.place, Immediate)
    )
