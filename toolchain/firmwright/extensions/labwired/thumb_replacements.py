"""Thumb instructions that LabWired lacks, and sequences of others that equal them.

LabWired 0.25 has no SSAT, no USAT with a shift, and no SXTB16 or UXTB16, with or
without addition: the processor faults. PKHBT and PKHTB ignore their shift. All are
instructions of the Cortex-M4 and M33, which QEMU executes (Armv7-M Architecture
Reference Manual, A7.7).

A sequence keeps the flags, and all registers but that of the result. The flag Q, which
C programs do not read, is not that of the replaced instruction.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

Halfwords: TypeAlias = tuple[int, ...]

_PC: Final = 15
_ADD: Final = 0xEB00
_EOR: Final = 0xEA80
_ORN: Final = 0xEA60
_ORR: Final = 0xEA40
_BFI: Final = 0xF360
_USAT: Final = 0xF380
_EXTEND_BYTE: Final = {False: 0xFA5F, True: 0xFA4F}
"""UXTB and SXTB, by whether the byte is signed."""


class _Shift(IntEnum):
    """The kinds of shifts, as they are encoded."""

    LSL = 0
    ASR = 2


@dataclass(frozen=True, slots=True)
class _Operands:
    """The registers and the shift of an instruction; `first` may be PC, for none."""

    target: int
    first: int
    second: int
    amount: int

    def free_registers(self) -> tuple[int, int]:
        """Return two of the low registers that the instruction does not use."""
        used = (self.target, self.first, self.second)
        free = [register for register in range(8) if register not in used]
        return free[0], free[1]


def replace_instruction(first: int, second: int) -> Halfwords:
    """Return an equal sequence for two halfwords; () if LabWired has them."""
    operation = first & 0xFFF0
    amount = second >> 10 & 0x1C | second >> 6 & 3
    operands = _Operands(second >> 8 & 0xF, first & 0xF, second & 0xF, amount)
    has_limit = second & 0x8020 == 0
    shift = _Shift.ASR if first & 0x20 else _Shift.LSL
    is_pair = operation in (0xF320, 0xF3A0) and amount == 0  # SSAT16 and USAT16
    match operation:
        case 0xF300 | 0xF320 if has_limit and not is_pair:
            return _saturate_signed(operands, shift, second & 0x1F)
        case 0xF380 | 0xF3A0 if has_limit and amount:
            shifted = _register(
                _ORR, operands.target, _PC, operands.first, shift, amount
            )
            return *shifted, *_usat(operands.target, operands.target, second & 0x1F)
        case 0xEAC0 if second & 0x8010 == 0 and (amount or second & 0x20):
            return _pack(operands, is_top=bool(second & 0x20))
        case 0xFA20 | 0xFA30 if second & 0xF0C0 == 0xF080:
            rotation = second >> 4 & 3
            return _extend_pair(operands, rotation, is_signed=operation == 0xFA20)
    return ()


def branch(source: int, target: int) -> Halfwords:
    """Return B.W at one address to another; ValueError if it is too far away."""
    offset = target - (source + 4)
    if not -(1 << 24) <= offset < 1 << 24:
        raise ValueError("the target of a branch is too far away.")
    sign = offset >> 24 & 1
    j1, j2 = 1 ^ sign ^ (offset >> 23 & 1), 1 ^ sign ^ (offset >> 22 & 1)
    high = 0xF000 | sign << 10 | offset >> 12 & 0x3FF
    return high, 0x9000 | j1 << 13 | j2 << 11 | offset >> 1 & 0x7FF


def _saturate_signed(operands: _Operands, shift: _Shift, limit: int) -> Halfwords:
    """Return SSAT to `limit` + 1 bits.

    USAT of the value and of its complement give 0 for one of them. That of the
    complement is complemented again if the value is negative.
    """
    value, other = operands.free_registers()
    code = (
        *_register(_ORR, value, _PC, operands.first, shift, operands.amount),
        *_register(_ORN, other, _PC, value),
        *_usat(other, other, limit),
        *_register(_EOR, other, other, value, _Shift.ASR, 31),
        *_usat(value, value, limit),
        *_register(_ORR, operands.target, value, other),
    )
    return _keeping(value, other, code)


def _pack(operands: _Operands, *, is_top: bool) -> Halfwords:
    """Return PKHTB, or PKHBT: the halves of the first and the shifted register."""
    shifted, result = operands.free_registers()
    shift = _Shift.ASR if is_top else _Shift.LSL
    moved = _register(_ORR, shifted, _PC, operands.second, shift, operands.amount)
    if is_top:
        halves = (
            *_register(_ORR, result, _PC, operands.first),
            *_insert_low_half(result, shifted),
        )
    else:
        halves = (
            *_register(_ORR, result, _PC, shifted),
            *_insert_low_half(result, operands.first),
        )
    code = (*moved, *halves, *_register(_ORR, operands.target, _PC, result))
    return _keeping(shifted, result, code)


def _extend_pair(operands: _Operands, rotation: int, *, is_signed: bool) -> Halfwords:
    """Return SXTAB16 or UXTAB16, which also are SXTB16 and UXTB16.

    The sum of the upper halves is that of words whose lower half is 0 in one.
    """
    low, high = operands.free_registers()
    extend = _EXTEND_BYTE[is_signed]
    shift = _Shift.LSL
    bytes_of_word = (
        *_extend(extend, low, operands.second, rotation),
        *_extend(extend, high, operands.second, (rotation + 2) % 4),
        *_register(_ORR, high, _PC, high, shift, 16),
    )
    sums: Halfwords = ()
    if operands.first != _PC:
        sums = (
            *_register(_ADD, low, operands.first, low),
            *_register(_ADD, high, operands.first, high),
        )
    result = _register(_ORR, operands.target, _PC, high)
    code = (*bytes_of_word, *sums, *_insert_low_half(high, low), *result)
    return _keeping(low, high, code)


def _keeping(one: int, other: int, code: Halfwords) -> Halfwords:
    """Return the code between PUSH and POP of two low registers."""
    registers = 1 << one | 1 << other
    return (0xB400 | registers, *code, 0xBC00 | registers)


def _register(
    operation: int,
    target: int,
    first: int,
    second: int,
    shift: _Shift = _Shift.LSL,
    amount: int = 0,
) -> Halfwords:
    """Return an operation of a register and a shifted one.

    With PC as first operand, ORR is MOV and ORN is MVN.
    """
    shifted = (amount & 0x1C) << 10 | (amount & 3) << 6 | shift << 4
    return operation | first, shifted | target << 8 | second


def _usat(target: int, source: int, limit: int) -> Halfwords:
    return _USAT | source, target << 8 | limit


def _insert_low_half(target: int, source: int) -> Halfwords:
    return _BFI | source, target << 8 | 15


def _extend(operation: int, target: int, source: int, rotation: int) -> Halfwords:
    return operation, 0xF080 | target << 8 | rotation << 4 | source
