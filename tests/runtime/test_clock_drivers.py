"""The clock drivers against played chips: what they set, in which order, when they end.

A driver is compiled for this machine with every register access led to
`simulated_clocks.c`. The words that must stand in the registers were worked out from
the manuals' field tables, for the board's settings.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmwright.boards import Board, list_boards, list_chips, load_board, load_chip
from firmwright.build.linker_script import format_board_header

ROOT = Path(__file__).parents[2]
PORTS = ROOT / "runtime_c" / "port"
WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
    "-Wno-int-to-pointer-cast",
)
READY = 1 << 31


@dataclass(frozen=True)
class Chip:
    """Rules and fields of `simulated_clocks.c`; the words that a driver leaves behind.

    `switch` is the register and the bits that mean: on the PLL. `flash` is what slows
    the flash down, and its word by then.
    """

    rules: tuple[tuple[int, int, int, int], ...]
    fields: tuple[tuple[int, int, int, int], ...]
    switch: tuple[int, int]
    flash: tuple[int, int]
    words: dict[int, int]
    define: str = ""


def stm32f1(words: dict[int, int], flash_word: int) -> Chip:
    rcc = 0x40021000
    return Chip(
        rules=((rcc, 1 << 16, rcc, 1 << 17), (rcc, 1 << 24, rcc, 1 << 25)),
        fields=((rcc + 4, 3, rcc + 4, 2),),
        switch=(rcc + 4, 2 << 2),
        flash=(0x40022000, flash_word),
        words=words,
    )


def stm32f4(words: dict[int, int], flash_word: int) -> Chip:
    rcc, power = 0x40023800, 0x40007000
    return Chip(
        rules=(
            (rcc, 1 << 16, rcc, 1 << 17),
            (rcc, 1 << 24, rcc, 1 << 25),
            (power, 1 << 16, power + 4, 1 << 16),
            (power, 1 << 17, power + 4, 1 << 17),
        ),
        fields=((rcc + 8, 3, rcc + 8, 2),),
        switch=(rcc + 8, 2 << 2),
        flash=(0x40023C00, flash_word),
        words=words,
    )


def rp2(
    clocks: int, resets: int, crystal: int, pll: int, dividers: int, define: str
) -> Chip:
    return Chip(
        rules=(
            (crystal, 0xFAB << 12, crystal + 4, READY),
            (pll + 0x3004, 0x21, pll, READY),
            *((resets + 0x3000, 1 << bit, resets + 8, 1 << bit) for bit in (12, 14)),
        ),
        fields=(
            (clocks + 0x30, 3, clocks + 0x38, 32),
            (clocks + 0x3C, 1, clocks + 0x44, 32),
        ),
        switch=(clocks + 0x44, 2),
        flash=(clocks + 0x38, 1 << 2),
        words={
            clocks + 0x30: 2,
            clocks + 0x3C: 1,
            crystal: 0xFABAA0,
            crystal + 0xC: 47,
            pll + 8: 125,
            pll + 0xC: dividers,
            pll + 0x3004: 1 << 3,
        },
        define=define,
    )


def stm32l4(words: dict[int, int], flash_word: int) -> Chip:
    rcc = 0x40021000
    return Chip(
        rules=((rcc, 1 << 8, rcc, 1 << 10), (rcc, 1 << 24, rcc, 1 << 25)),
        fields=((rcc + 8, 3, rcc + 8, 2),),
        switch=(rcc + 8, 3 << 2),
        flash=(0x40022000, flash_word),
        words=words,
    )


def stm32g0(
    rcc: int, flash: int, bits: int, pll: int, words: dict[int, int], flash_word: int
) -> Chip:
    """`pll` in the field of `bits` bits at bit 0 of CFGR selects the PLL."""
    return Chip(
        rules=((rcc, 1 << 8, rcc, 1 << 10), (rcc, 1 << 24, rcc, 1 << 25)),
        fields=((rcc + 8, (1 << bits) - 1, rcc + 8, bits),),
        switch=(rcc + 8, pll << bits),
        flash=(flash, flash_word),
        words={rcc + 8: pll << bits | pll, **words},
    )


def stm32h7() -> Chip:
    return Chip(
        rules=(
            (0x5802480C, 2, 0x58024804, 1 << 13),
            (0x58024818, 3 << 14, 0x58024818, 1 << 13),
            (0x58024400, 1 << 24, 0x58024400, 1 << 25),
        ),
        fields=((0x58024410, 7, 0x58024410, 3),),
        switch=(0x58024410, 3 << 3),
        flash=(0x52002000, 0x22),
        words={
            0x58024428: 0x40,
            0x5802442C: 0x1000C,
            0x58024430: 0x01010231,
            0x58024418: 0x48,
            0x5802441C: 0x440,
            0x58024420: 0x40,
            0x58024410: 0x1B,
        },
    )


CHIPS = {
    "stm32f030r8": stm32f1({0x40021004: 0x28000A, 0x40022000: 0x11}, 0x11),
    "stm32f103c8": stm32f1({0x40021004: 0x38040A, 0x40022000: 0x12}, 0x12),
    "stm32f411re": stm32f4(
        {0x40023804: 0x09001908, 0x40023808: 0x100A, 0x40007000: 3 << 14}, 0x703
    ),
    "stm32f446re": stm32f4(
        {0x40023804: 0x09002D08, 0x40023808: 0x940A, 0x40007000: 3 << 16}, 0x705
    ),
    "stm32g071rb": stm32g0(
        0x40021000, 0x40022000, 3, 2, {0x4002100C: 0x30000802}, 0x302
    ),
    "stm32g474re": stm32l4(
        {0x4002100C: 0x01005532, 0x40021008: 0xF, 0x40021058: 1 << 28}, 0x704
    ),
    "stm32h563zi": Chip(
        rules=(
            (0x44020810, 3 << 4, 0x44020814, 1 << 3),
            (0x44020C00, 1 << 24, 0x44020C00, 1 << 25),
        ),
        fields=((0x44020C1C, 7, 0x44020C1C, 3),),
        switch=(0x44020C1C, 3 << 3),
        flash=(0x40022000, 0x125),
        words={
            0x44020C28: 0x10809,
            0x44020C34: 0x0101027C,
            0x44020C1C: 0x1B,
            0x44020810: 0x30,
            0x40030400: 1,
        },
    ),
    "stm32h723zg": stm32h7(),
    "stm32l476rg": stm32l4({0x4002100C: 0x01000A02, 0x40021008: 0xF}, 0x704),
    "stm32wb55rg": stm32g0(
        0x58000000,
        0x58004000,
        2,
        3,
        {0x5800000C: 0x30000802, 0x58000108: 0x80},
        0x703,
    ),
    "stm32wle5jc": stm32g0(
        0x58000000, 0x58004000, 2, 3, {0x5800000C: 0x50000902}, 0x702
    ),
    "stm32vldiscovery": stm32f1({0x40021004: 0x5000A}, 0),
    "bluepill-f103": stm32f1({0x40021004: 0x1D040A, 0x40022000: 0x12}, 0x12),
    "netduinoplus2": stm32f4({0x40023804: 0x09405419, 0x40023808: 0x940A}, 0x705),
    "disco-f746ng": stm32f4(
        {0x40023804: 0x09406C19, 0x40023808: 0x940A, 0x40007000: 3 << 16}, 0x307
    ),
    "nucleo-l4r5zi": stm32l4(
        {0x4002100C: 0x01000F02, 0x40021008: 0xF, 0x40021058: 1 << 28}, 0x705
    ),
    "nucleo-u575zi-q": Chip(
        rules=(
            (0x46020C00, 1 << 8, 0x46020C00, 1 << 10),
            (0x46020C00, 1 << 24, 0x46020C00, 1 << 25),
            (0x4602080C, 3 << 16, 0x4602080C, 1 << 15),
            (0x4602080C, 1 << 18, 0x4602080C, 1 << 14),
        ),
        fields=((0x46020C1C, 3, 0x46020C1C, 2),),
        switch=(0x46020C1C, 3 << 2),
        flash=(0x40022000, 0x104),
        words={
            0x46020C28: 0x4000E,
            0x46020C34: 0x01010213,
            0x46020C1C: 0xF,
            0x4602080C: 0x7C000,
            0x40030400: 1,
        },
    ),
    "nucleo-h743zi": stm32h7(),
    "nrf52840-dk": Chip(
        rules=((0x40000000, 1, 0x4000040C, 1 << 16 | 1),),
        fields=(),
        switch=(0x4000040C, 1),
        flash=(0x4001E540, 1),
        words={0x40000000: 1},
    ),
    "rpi-pico": rp2(
        0x40008000, 0x4000C000, 0x40024000, 0x40028000, 0x62000, "__ARM_ARCH_6M__"
    ),
    "rpi-pico2": rp2(
        0x40010000, 0x40020000, 0x40048000, 0x40050000, 0x52000, "__ARM_ARCH_8M_MAIN__"
    ),
    "hifive1-revb": Chip(
        rules=(
            (0x10008004, 1 << 30, 0x10008004, READY),
            (0x10008008, 1 << 17, 0x10008008, READY),
        ),
        fields=(),
        switch=(0x10008008, 1 << 16),
        flash=(0x10014000, 3),
        words={0x10008008: 0x80030671, 0x1000800C: 0x100},
    ),
}


def load(name: str) -> Board:
    """Return the board, or the chip of that name, whose clock is as in a new board."""
    names = {board.name for board in list_boards()}
    return load_board(name) if name in names else load_chip(name)


def build(name: str, folder: Path) -> Path:
    """The driver of a board's clock behind its chip, as a program of this machine."""
    board, chip = load(name), CHIPS[name]
    assert board.clock is not None
    (folder / "fwr_board.h").write_text(format_board_header(board))
    rows = {
        "RULES": "".join(
            f"{{{a:#x}u,{b:#x}u,{c:#x}u,{d:#x}u}}," for a, b, c, d in chip.rules
        ),
        "FIELDS": "".join(
            f"{{{a:#x}u,{b:#x}u,{c:#x}u,{d}u}}," for a, b, c, d in chip.fields
        ),
        "SHOWN": ",".join(f"{address:#x}u" for address in chip.words),
        "SWITCH": f"{chip.switch[0]:#x}u",
        "SWITCH_MASK": f"{chip.switch[1]:#x}u",
        "WATCHED": f"{chip.flash[0]:#x}u",
        "FWR_REG(address)": "(*fwr_test_register(address))",
    }
    hook = (
        "#include <stdint.h>\nvolatile uint32_t *fwr_test_register(uint32_t address);\n"
    )
    (folder / "hook.h").write_text(hook)
    words = [
        "gcc",
        "-std=c99",
        *WARNINGS,
        *(f"-D{key}={value}" for key, value in rows.items()),
    ]
    words += [f"-D{chip.define}"] if chip.define else []
    port = PORTS / board.port
    words += [
        "-include",
        str(folder / "hook.h"),
        f"-I{folder}",
        f"-I{PORTS}",
        f"-I{port}",
    ]
    sources = [
        port / f"clock_{board.clock.driver}.c",
        Path(__file__).with_name("simulated_clocks.c"),
    ]
    program = folder / "clocks"
    subprocess.run([*words, *map(str, sources), "-o", str(program)], check=True)
    return program


def run(program: Path, *words: str) -> list[tuple[int, ...]]:
    """What it says: raised and the watched word, then addresses and words."""
    done = subprocess.run(
        [program, *words], check=True, capture_output=True, text=True, timeout=60
    )
    first, *rest = done.stdout.splitlines()
    return [
        tuple(map(int, first.split())),
        *(tuple(int(w, 16) for w in r.split()) for r in rest),
    ]


@pytest.mark.host_c
@pytest.mark.parametrize("name", sorted(CHIPS))
def test_a_driver_sets_what_the_manual_says_or_gives_up_where_nothing_becomes_ready(
    name: str, tmp_path: Path
) -> None:
    chip, program = CHIPS[name], build(name, tmp_path)
    (raised, flash_word), *found = run(program, "alive")
    assert raised == 1
    assert flash_word == chip.flash[1], (
        "the flash is slowed down before the clock is raised"
    )
    wanted = {address: hex(word) for address, word in chip.words.items()}
    assert {address: hex(word) for address, word in found} == wanted
    (raised, _), *_ = run(program)
    assert raised == 0


def test_every_board_with_a_clock_and_every_driver_has_a_chip_here() -> None:
    assert {b.name for b in list_boards() if b.clock is not None} <= set(CHIPS)
    drivers = {chip.clock.driver for chip in list_chips() if chip.clock is not None}
    clocks = [load(name).clock for name in CHIPS]
    assert {clock.driver for clock in clocks if clock is not None} == drivers
