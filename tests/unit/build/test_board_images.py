"""The image of each board and chip begins as the chip needs it, inside its memory."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.artifacts import Image, SourceTree
from firmwright.boards import Board, list_boards, list_chips, load_board
from firmwright.build import build_project
from firmwright.build.project_files import project_files
from tests.emulators import tool_family

DEFAULT = ("rpi-pico", "nucleo-h743zi", "esp32-c3-devkitm-1")
ALWAYS_BUILT = "qemu"  # the tests that run firmware build these boards' images
BOARDS = [
    pytest.param(
        board.name,
        marks=[
            pytest.mark.qemu(tool_family(board)),
            *([] if board.name in DEFAULT else [pytest.mark.deep]),
        ],
    )
    for board in (*list_boards(), *list_chips())
    if not (board.is_host or board.export_only or board.run.kind == ALWAYS_BUILT)
]


def crc32_of_the_boot_rom(data: bytes) -> int:
    """Polynomial 0x04C11DB7, from all ones, high bit first, nothing inverted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    return crc


def vectors_at(board: Board, binary: bytes) -> int:
    """Checks what the boot ROM wants, and says where in the image the vectors are."""
    match board.boot:
        case "rp2040":
            assert (
                crc32_of_the_boot_rom(binary[:252])
                == struct.unpack_from("<I", binary, 252)[0]
            )
            return 256
        case "rp2350":
            block = bytes.fromhex("d3deffff 42012110 ff010000 00000000 793512ab")
            at = binary[:4096].find(block)
            assert at > 0
            assert at % 4 == 0
    return 0


def check_direct_boot(board: Board, image: Image, binary: bytes) -> None:
    """Check the mark of direct boot, the entry, the vectors, and where constants are.

    The image is what the two windows of a chip show: instructions, then constants.
    """
    assert binary[:8] == bytes.fromhex("1d04dbae1d04dbae")
    symbols = {symbol.name: symbol.address for symbol in image.sizes.symbols}
    assert symbols["fwr_start"] == board.flash.start + 8
    assert symbols["trap_handler"] % 256 == 0
    elf, start = image.elf.read_bytes(), board.flash.data_start or board.flash.start
    (table,) = [s for s in image.sizes.sections if s.name == ".rodata"]
    constants = binary[table.address - start :]
    assert len(constants) == table.size_bytes > 0
    assert constants in elf


def check_vectors(board: Board, image: Image, binary: bytes) -> None:
    if board.boot == "esp_direct":
        check_direct_boot(board, image, binary)
    if board.port != "cortex_m":  # it starts with an instruction, not with vectors
        return
    at = vectors_at(board, binary)
    stack, reset = struct.unpack_from("<2I", binary, at)
    symbols = {symbol.name: symbol.address for symbol in image.sizes.symbols}
    assert symbols["fwr_vectors"] == board.flash.start + at
    assert board.ram.start < stack <= board.ram.end
    assert stack % 8 == 0
    assert reset == symbols["fwr_reset_handler"] | 1
    assert board.flash.start < reset < board.flash.start + len(binary)


@pytest.mark.parametrize("name", BOARDS)
def test_the_image_of_a_physical_board_has_the_required_boot_data(
    name: str, twice: Callable[..., SourceTree], tmp_path: Path
) -> None:
    board = load_board(name)
    twice().merged(project_files(board)).write(tmp_path)
    image = build_project(tmp_path)
    assert image.bin is not None
    binary = image.bin.read_bytes()
    assert len(binary) <= board.flash.size_bytes
    for section in image.sizes.sections:
        start = section.address
        if section.name == ".rodata":
            start += board.flash.data_distance_bytes
        inside = [r for r in board.memory if r.start <= start < r.end]
        assert len(inside) == 1, section
        assert start + section.size_bytes <= inside[0].end
    for use in image.sizes.regions:
        assert use.used_bytes <= use.size_bytes
    check_vectors(board, image, binary)
