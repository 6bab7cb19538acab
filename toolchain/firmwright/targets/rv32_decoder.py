"""Decoder of RV32IMAC instructions.

Source: the encodings in the RISC-V unprivileged specification.
"""

from collections.abc import Mapping

from firmwright.targets.instruction import Instruction, InstructionKind

_LINK = (1, 5)  # the registers that a call stores its return address in
_SHORT_MEMORY: Mapping[int, InstructionKind] = {2: "load", 6: "store"}


def decode_rv32(code: bytes) -> Instruction:
    first = int.from_bytes(code[:2], "little")
    if first & 3 != 3:
        return Instruction(2, _short(first))
    return Instruction(4, _long(int.from_bytes(code[:4], "little")))


def _short(word: int) -> InstructionKind:
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


def _long(word: int) -> InstructionKind:
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
