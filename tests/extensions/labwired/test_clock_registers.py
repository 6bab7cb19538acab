"""The clock registers of simulated chips after start-up.

The frequency is computed here from the registers, by the formulas of the chips'
reference manuals, and compared with the one that the board's file promises.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.device.transport_selection import open_transport
from firmwright.extensions.labwired.transport import LabWiredTransport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model

Read = Callable[[int], int]
HSI_HZ = 16_000_000
CRYSTAL_HZ = 12_000_000


def stm32f401_hz(read: Read) -> int:
    """RM0368, 6.3.2 and 6.3.3: the PLL from the internal oscillator is selected."""
    settings, configuration = read(0x4002_3804), read(0x4002_3808)
    assert configuration >> 2 & 3 == 2
    assert settings >> 22 & 1 == 0
    divider = 2 * (settings >> 16 & 3) + 2
    return HSI_HZ // (settings & 0x3F) * (settings >> 6 & 0x1FF) // divider


def stm32u575_hz(read: Read) -> int:
    """RM0456, 11.8: PLL1 from the internal oscillator is selected."""
    settings, dividers = read(0x4602_0C28), read(0x4602_0C34)
    assert read(0x4602_0C1C) >> 2 & 3 == 3
    assert settings & 3 == 2
    multiplied = HSI_HZ // ((settings >> 8 & 0xF) + 1) * ((dividers & 0x1FF) + 1)
    return multiplied // ((dividers >> 24 & 0x7F) + 1)


def rp2040_hz(read: Read) -> int:
    """RP2040 data sheet, 2.15.3 and 2.18: the processor runs from the system PLL."""
    assert read(0x4000_803C) & 0xE1 == 1
    dividers = read(0x4002_800C)
    multiplied = CRYSTAL_HZ * (read(0x4002_8008) & 0xFFF)
    return multiplied // ((dividers >> 16 & 7) * (dividers >> 12 & 7))


FREQUENCIES: dict[str, Callable[[Read], int]] = {
    "stm32f401re": stm32f401_hz,
    "stm32u575zi": stm32u575_hz,
    "rp2040": rp2040_hz,
}


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("chip", FREQUENCIES)
def test_the_registers_give_the_clock_of_the_board(
    chip: str, digits_path: Path
) -> None:
    pytest.importorskip("labwired", reason="needs LabWired (pip install labwired)")
    board = load_board(chip)
    assert board.clock is not None
    image = build_image(compile_for(load_model(digits_path), board=chip))
    transport = open_transport(board, image.elf)
    assert isinstance(transport, LabWiredTransport)
    while not transport.read(64, 1.0):
        pass
    read = transport._running().read_u32
    assert FREQUENCIES[chip](read) == board.clock.hz
    transport.close()
