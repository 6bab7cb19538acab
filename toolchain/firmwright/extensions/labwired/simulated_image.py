"""Replaces instructions that LabWired lacks in the image of a Cortex-M board.

Each such instruction becomes a branch to a sequence behind the image, which ends with a
branch back. All other bytes stay, and so do their addresses:

    ssat r3, #8, r1, asr #12   becomes   b.w sequence
    sequence: push {r0, r2}; ...; pop {r0, r2}; b.w next
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.base.errors import UsageError
from firmwright.base.rounding import round_up
from firmwright.boards import Board
from firmwright.build.elf_reader import ThumbCode, read_thumb_code
from firmwright.extensions.labwired.thumb_replacements import (
    branch,
    replace_instruction,
)

_HEADER: Final = struct.Struct("<16sHHIIIIIHHHHHH")
_SEGMENT: Final = struct.Struct("<8I")
_LOAD: Final = 1
_READ_EXECUTE: Final = 5
_WIDE: Final = 0xE800
"""The least first halfword of an instruction of two halfwords."""
_HINT: Final = "compile with --no-inline-asm."


@dataclass(frozen=True, slots=True)
class _Replacement:
    """An instruction to replace, at an address and at an offset of the file."""

    address: int
    offset: int
    sequence: tuple[int, ...]


def make_simulated_image(elf: Path, board: Board) -> bytes | None:
    """Return the ELF file to simulate; None if `elf` has only known instructions.

    Raise UsageError if an instruction cannot be replaced where it is, or if the flash
    has no space left.
    """
    replacements: list[_Replacement] = []
    for code in read_thumb_code(elf):
        replacements += _find_replacements(code, board.name)
    if not replacements:
        return None
    image = bytearray(elf.read_bytes())
    start = _end_of_flash(image, board)
    added: list[int] = []
    for item in replacements:
        at = start + 2 * len(added)
        try:
            there = branch(item.address, at)
            back_at = at + 2 * len(item.sequence)
            back = branch(back_at, item.address + 4)
        except ValueError as error:
            what = f"code in RAM has an instruction that LabWired lacks: {error}"
            raise UsageError(what, where=board.name, hint=_HINT) from error
        struct.pack_into("<2H", image, item.offset, *there)
        added += [*item.sequence, *back]
    if start + 2 * len(added) > board.flash.start + board.flash.size_bytes:
        what = "the flash has no space for what replaces LabWired's missing "
        what += f"instructions, {2 * len(added):,} bytes."
        raise UsageError(what, where=board.name, hint=_HINT)
    return _with_segment(image, start, struct.pack(f"<{len(added)}H", *added))


def _find_replacements(code: ThumbCode, where: str) -> Iterator[_Replacement]:
    halfwords = struct.unpack(f"<{len(code.data) // 2}H", code.data)
    index, conditional = 0, 0
    while index < len(halfwords):
        first = halfwords[index]
        is_wide = first >= _WIDE and index + 1 < len(halfwords)
        sequence = replace_instruction(first, halfwords[index + 1]) if is_wide else ()
        if sequence and conditional:
            what = "LabWired lacks an instruction that is executed conditionally, at "
            what += f"{code.address + 2 * index:#010x}."
            raise UsageError(what, where=where, hint=_HINT)
        if sequence:
            place = 2 * index
            yield _Replacement(code.address + place, code.offset + place, sequence)
        conditional = max(conditional - 1, _conditional_count(first))
        index += 2 if is_wide else 1


def _conditional_count(halfword: int) -> int:
    """Return how many instructions an IT makes conditional; 0 if it is no IT."""
    mask = halfword & 0xF
    if halfword & 0xFF00 != 0xBF00 or not mask:
        return 0
    return 5 - (mask & -mask).bit_length()


def _end_of_flash(image: bytearray, board: Board) -> int:
    """Return the first address of the flash behind the image, in words."""
    flash = board.flash
    end = flash.start
    for kind, _, _, address, size, _, _, _ in _segments(image):
        if kind == _LOAD and flash.start <= address < flash.start + flash.size_bytes:
            end = max(end, address + size)
    return round_up(end, 4)


def _segments(image: bytearray) -> Iterator[tuple[int, ...]]:
    header = _HEADER.unpack_from(image)
    for index in range(header[10]):
        yield _SEGMENT.unpack_from(image, header[5] + index * _SEGMENT.size)


def _with_segment(image: bytearray, address: int, data: bytes) -> bytes:
    """Return the file with the data as another segment that is loaded."""
    offset = len(image)
    table = b"".join(_SEGMENT.pack(*segment) for segment in _segments(image))
    size = len(data)
    added = (_LOAD, offset, address, address, size, size, _READ_EXECUTE, 4)
    header = list(_HEADER.unpack_from(image))
    header[5] = round_up(offset + size, 4)
    header[10] += 1
    _HEADER.pack_into(image, 0, *header)
    padding = bytes(header[5] - offset - size)
    return bytes(image) + data + padding + table + _SEGMENT.pack(*added)
