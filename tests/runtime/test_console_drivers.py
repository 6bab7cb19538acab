"""The console drivers' rates against registers that are played.

Each driver is compiled for this machine with its registers led to words of an array,
whose flags say that nothing waits to be sent. What must stand in the divider is written
here from the chips' formulas.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import pytest

from firmwright.boards import load_board
from firmwright.build.linker_script import format_board_header

ROOT = Path(__file__).parents[2]
PORTS = ROOT / "runtime_c" / "port"
UNSUPPORTED = -7
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")

CHIP = """
#include <stdint.h>
uint32_t words[1024];
uint32_t *word_at(uint32_t address);
int fwr_clock_is_raised(void);
int fwr_clock_is_raised(void) { return 1; }
uint32_t *word_at(uint32_t address) { return &words[address / 4u % 1024u]; }
"""


def hz(name: str) -> int:
    return load_board(name).console_raised_hz


def of_16_mhz(baud: int) -> int:
    return (baud * 2**32 // 16_000_000 + 0x800) & ~0xFFF


def of_nordic_dma(baud: int) -> int:
    """The word whose quotient of 2^32 is the number of clocks of a bit."""
    return (2**32 - 1) // round(16e6 / baud) & ~0xFFF


def of_espressif(baud: int) -> int:
    """A divider of 20 MHz: sixteenths from bit 20 on."""
    whole, sixteenths = divmod(round(16 * 20e6 / baud), 16)
    return whole | sixteenths << 20


DRIVERS: dict[str, Callable[[int], tuple[tuple[int, int], ...]]] = {
    # board: the registers by their offset, and their words at a baud
    "mps2-an386": lambda baud: ((0x10, round(25e6 / baud)),),
    "microbit": lambda baud: ((0x524, of_16_mhz(baud)),),
    "nrf5340": lambda baud: ((0x524, of_nordic_dma(baud)),),
    "nrf54l15": lambda baud: ((0x524, of_nordic_dma(baud)),),
    "stm32vldiscovery": lambda baud: ((0x08, round(hz("stm32vldiscovery") / baud)),),
    "nucleo-h743zi": lambda baud: (
        (0x0C, round(hz("nucleo-h743zi") / baud)),
        (0x00, 0xD),
    ),
    "nucleo-l4r5zi": lambda baud: ((0x0C, round(256 * hz("nucleo-l4r5zi") / baud)),),
    "hifive1-revb": lambda baud: ((0x18, round(hz("hifive1-revb") / baud) - 1),),
    "rpi-pico": lambda baud: (
        (0x24, int(hz("rpi-pico") / 16 / baud)),
        (0x28, int((int(8 * hz("rpi-pico") / baud + 0.5) % 128 + 1) / 2)),
    ),
    "esp32-c3-devkitm-1": lambda baud: ((0x14, of_espressif(baud)),),
    "esp32-c6-devkitc-1": lambda baud: ((0x14, of_espressif(baud)), (0x98, 1)),
}

# The flags that say that all has left, where zeros do not.
IDLE = {
    "stm32vldiscovery": {0x00: 1 << 6},
    "nucleo-h743zi": {0x1C: 1 << 6},
    "nucleo-l4r5zi": {0x1C: 1 << 6},
    "hifive1-revb": {0x14: 1},
}


def driver(name: str, folder: Path) -> Any:
    """The library of a board's console driver, and its words."""
    board = load_board(name)
    (folder / "fwr_board.h").write_text(format_board_header(board))
    (folder / "chip.c").write_text(CHIP)
    (folder / "hook.h").write_text(
        "#include <stdint.h>\nuint32_t *word_at(uint32_t address);\n"
        "#define FWR_REG(address) (*(volatile uint32_t *)word_at(address))\n"
    )
    file = f"console_{board.console.driver}.c"
    own = PORTS / board.port / file
    source = own if own.is_file() else PORTS / file
    places = [
        f"-I{place}" for place in (folder, PORTS, PORTS.parent, PORTS / board.port)
    ]
    command = ["gcc", "-std=c99", "-O1", "-shared", "-fPIC", *WARNINGS, *places]
    command += ["-include", str(folder / "hook.h"), str(source), str(folder / "chip.c")]
    if "rp2" in board.console.driver:
        command += [
            str(PORTS / "cortex_m" / "clock_rp2.c"),
            "-Wl,--allow-multiple-definition",
        ]
    subprocess.run([*command, "-o", str(folder / "driver.so")], check=True)
    ffi = cffi.FFI()
    ffi.cdef(
        "int32_t fwr_port_set_baud(uint32_t baud, int now); extern uint32_t words[1024];"
    )
    return ffi.dlopen(str(folder / "driver.so"))


@pytest.mark.host_c
@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_sets_the_divider_that_the_chips_formula_gives(
    name: str, tmp_path: Path
) -> None:
    chip = driver(name, tmp_path)
    base = load_board(name).console.base
    for asked, baud in ((9600, 9600), (57600, 57600), (0, 115200)):
        for offset, word in IDLE.get(name, {}).items():
            chip.words[(base + offset) // 4 % 1024] = word
        assert chip.fwr_port_set_baud(asked, 1) == 0
        for offset, word in DRIVERS[name](baud):
            assert chip.words[(base + offset) // 4 % 1024] == word, (
                f"{offset:#x} at {baud}"
            )


@pytest.mark.host_c
@pytest.mark.parametrize(
    "name",
    [
        "mps2-an386",
        "stm32vldiscovery",
        "microbit",
        "nrf5340",
        "hifive1-revb",
        "esp32-c3-devkitm-1",
    ],
)
def test_a_rate_out_of_reach_is_refused_and_nothing_is_touched(
    name: str, tmp_path: Path
) -> None:
    chip = driver(name, tmp_path)
    for baud in (1, 30_000_000, 0xFFFFFFFF):
        assert chip.fwr_port_set_baud(baud, 1) == UNSUPPORTED
    assert not any(chip.words)


def test_the_words_of_nordics_uart_with_dma_give_the_rates_of_its_specification() -> (
    None
):
    """The nRF5340's product specification lists words with their actual rates."""
    listed = {
        (1200, 0x0004F000): 1205,
        (9600, 0x00275000): 9598,
        (28800, 0x0075C000): 28777,
        (76800, 0x013A9000): 76923,
        (115200, 0x01D60000): 115108,
        (230400, 0x03B00000): 231884,
        (921600, 0x0F000000): 941176,
        (1000000, 0x10000000): 1000000,
    }
    for (baud, word), actual in listed.items():
        assert round(16e6 / (2**32 // word)) == actual
        own = round(16e6 / (2**32 // of_nordic_dma(baud)))
        assert abs(own - baud) <= max(abs(actual - baud), baud // 100)
