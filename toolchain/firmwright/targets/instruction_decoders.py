"""Decoders of Thumb (Armv6-M to Armv8.1-M with Helium) and RV32IMAC instructions.

Only the properties that determine timing are decoded. Source: the encodings in the Armv7-M and
Armv8-M architecture reference manuals and in the RISC-V unprivileged specification.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

InstructionKind: TypeAlias = Literal[
    "alu", "load", "store", "load_multiple", "store_multiple", "multiply", "multiply_long",
    "divide", "branch", "call", "loop", "float", "float_multiply_add", "float_divide", "vector",
    "vector_load", "vector_store",
]  # fmt: skip
INSTRUCTION_KINDS: tuple[InstructionKind, ...] = get_args(InstructionKind)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction; `registers` counts the words of a multiple load or store."""

    size_bytes: int
    kind: InstructionKind
    registers: int = 1


_FLOAT_COPROCESSORS = (0x9, 0xA, 0xB)


def decode_thumb(code: bytes) -> Instruction:
    first = int.from_bytes(code[:2], "little")
    if first >> 11 < 0b11101:
        return _short(first)
    second = int.from_bytes(code[2:4], "little")
    match first >> 11 & 3:
        case 1 if not first & 0x0400:
            return _memory_or_register(first, second)
        case 2:
            return _of(_immediate_or_branch(first, second))
        case 3 if not first & 0x0400:
            return _single_or_multiply(first, second)
        case _:
            return _coprocessor(first, second)


def _of(kind: InstructionKind, registers: int = 1) -> Instruction:
    return Instruction(4, kind, registers)


def _short(word: int) -> Instruction:
    match word >> 12:
        case 0x4:
            return Instruction(2, _short_register(word))
        case 0x5:
            return Instruction(2, "load" if word >> 9 & 7 >= 3 else "store")
        case 0x6 | 0x7 | 0x8 | 0x9:
            return Instruction(2, "load" if word & 0x0800 else "store")
        case 0xB:
            return _short_miscellaneous(word)
        case 0xC:
            count = (word & 0xFF).bit_count()
            return Instruction(2, "load_multiple" if word & 0x0800 else "store_multiple", count)
        case 0xD:
            return Instruction(2, "branch" if word >> 8 & 0xF < 0xE else "alu")
        case 0xE:
            return Instruction(2, "branch")
        case _:
            return Instruction(2, "alu")


def _short_register(word: int) -> InstructionKind:
    """Decode 0x4000 to 0x4fff: data processing, moves with high registers, literal loads."""
    if word & 0x0800:
        return "load"
    if word & 0xFFC0 == 0x4340:
        return "multiply"
    if word & 0xFF00 == 0x4700:
        return "call" if word & 0x80 else "branch"
    writes_pc = word & 0x0087 == 0x0087 and word & 0xFF00 in (0x4400, 0x4600)
    return "branch" if writes_pc else "alu"


def _short_miscellaneous(word: int) -> Instruction:
    """Decode 0xb000 to 0xbfff: push, pop, compare and branch, extensions, hints."""
    count = (word & 0x1FF).bit_count()
    if word & 0xFE00 == 0xB400:
        return Instruction(2, "store_multiple", count)
    if word & 0xFE00 == 0xBC00:
        return Instruction(2, "load_multiple", count)
    return Instruction(2, "branch" if word & 0xF500 == 0xB100 else "alu")


def _memory_or_register(first: int, second: int) -> Instruction:
    """Decode 0xe800 to 0xebff: multiple and dual loads and stores, table branches, registers."""
    if first & 0x0200:
        return _of("alu")
    is_load = bool(first & 0x10)
    if not first & 0x40:
        if first == 0xE89F:
            return _of("alu")  # CLRM
        return _of("load_multiple" if is_load else "store_multiple", second.bit_count())
    if first == 0xE97F and second == 0xE97F:
        return _of("alu")  # SG
    if first & 0x0120:
        return _of("load_multiple" if is_load else "store_multiple", 2)
    if first & 0xFFF0 == 0xE8D0 and second & 0xE0 == 0:
        return _of("branch")  # TBB, TBH
    return _of("load" if is_load else "store")


def _immediate_or_branch(first: int, second: int) -> InstructionKind:
    """Decode 0xf000 to 0xf7ff: immediate operands and branches."""
    if not second & 0x8000:
        return "alu"
    match second & 0x5000:
        case 0x5000:
            return "call"
        case 0x1000:
            return "branch"
        case 0x4000:
            return "loop"  # low-overhead loops of Armv8.1-M
        case _:
            return "alu" if first >> 6 & 0xE == 0xE else "branch"


def _single_or_multiply(first: int, second: int) -> Instruction:
    """Decode 0xf800 to 0xfbff: single loads and stores, extensions, multiply, divide."""
    if first & 0x0200 == 0:
        is_hint = first & 0x10 and second >> 12 == 0xF and first & 0x60 != 0x40
        return _of("alu" if is_hint else "load" if first & 0x10 else "store")
    if first & 0x0100 == 0:
        return _of("alu")
    if first & 0x80 == 0:
        return _of("multiply")
    is_divide = first & 0x50 == 0x10 and second & 0xF0 == 0xF0
    return _of("divide" if is_divide else "multiply_long")


def _coprocessor(first: int, second: int) -> Instruction:
    """Decode 0xec00 to 0xefff and 0xfc00 to 0xffff: floating point and Helium."""
    is_float = second >> 8 & 0xF in _FLOAT_COPROCESSORS
    if first & 0x0200 == 0:
        is_load = bool(first & 0x10)
        if not is_float:
            return _of("vector_load" if is_load else "vector_store")
        if first & 0xFFE0 == 0xEC40:
            return _of("float")  # VMOV of two registers
        words = second & 0xFF
        if first & 0x0120 == 0x0100:  # VLDR, VSTR: a double is two words
            if not second & 0x0100:
                return _of("load" if is_load else "store")
            words = 2
        return _of("load_multiple" if is_load else "store_multiple", words)
    if first & 0x0100 or not is_float:
        return _of("vector")
    return _of(_float_operation(first, second))


def _float_operation(first: int, second: int) -> InstructionKind:
    if second & 0x10 or first & 0x1000:
        return "float"  # moves between register files; selections and roundings
    operation = first >> 4 & 0xB
    if operation == 0x8:
        return "float_divide"
    if operation == 0xB and first & 0xF == 1 and second & 0xC0 == 0xC0:
        return "float_divide"  # VSQRT
    return "float_multiply_add" if operation in (0x0, 0x1, 0x9, 0xA) else "float"


_LINK = (1, 5)  # the registers that a call stores its return address in
_SHORT_MEMORY: Mapping[int, InstructionKind] = {2: "load", 6: "store"}


def decode_rv32(code: bytes) -> Instruction:
    first = int.from_bytes(code[:2], "little")
    if first & 3 != 3:
        return Instruction(2, _short_rv32(first))
    return Instruction(4, _long_rv32(int.from_bytes(code[:4], "little")))


def _short_rv32(word: int) -> InstructionKind:
    function = word >> 13
    match word & 3:
        case 0:
            return _SHORT_MEMORY.get(function, "alu")
        case 1:
            if function == 1:
                return "call"
            return "branch" if function >= 5 else "alu"
        case _:
            if function == 4 and word >> 2 & 0x1F == 0 and word >> 7 & 0x1F:
                return "call" if word & 0x1000 else "branch"
            return _SHORT_MEMORY.get(function, "alu")


def _long_rv32(word: int) -> InstructionKind:
    match word & 0x7F:
        case 0x03 | 0x2F:
            return "load"
        case 0x23:
            return "store"
        case 0x63:
            return "branch"
        case 0x67 | 0x6F:
            return "call" if word >> 7 & 0x1F in _LINK else "branch"
        case 0x33 if word >> 25 == 1:
            function = word >> 12 & 7
            if function >= 4:
                return "divide"
            return "multiply_long" if function else "multiply"
        case _:
            return "alu"
