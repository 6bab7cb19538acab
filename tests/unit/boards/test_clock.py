"""Clock tree settings against the limits of the chips' manuals.

Each tree computes settings for a grid of frequencies. An independent formula of the
chip checks the frequency and the limits of every stage.
"""

from collections.abc import Callable

import pytest

from firmwright.boards import Clock, list_boards, list_chips, load_board
from firmwright.boards.clock_trees import CLOCK_TREES

MHZ = 1_000_000
CRYSTALS = (
    3 * MHZ,
    4 * MHZ,
    8 * MHZ,
    12 * MHZ,
    16 * MHZ,
    24 * MHZ,
    25 * MHZ,
    26 * MHZ,
    32 * MHZ,
)
Values = dict[str, int]
Limits = tuple[int, int]
"""The highest clock, and the clocks for each wait state, in MHz."""


def f1(most_hz: int, apb1_hz: int) -> Callable[[int, int, Values], int]:
    def check(crystal_hz: int, hz: int, v: Values) -> int:
        assert 2 <= v["PLL_MULTIPLIER"] <= 16
        assert 16 * MHZ <= hz <= most_hz
        assert hz // v.get("APB1_DIVIDER", 1) <= apb1_hz
        assert hz <= (v.get("FLASH_WAITS", 0) + 1) * 24 * MHZ
        return crystal_hz * v["PLL_MULTIPLIER"]

    return check


def f4(
    most_hz: int, apb1_hz: int, overdrive_hz: int
) -> Callable[[int, int, Values], int]:
    def check(crystal_hz: int, hz: int, v: Values) -> int:
        assert MHZ <= crystal_hz / v["PLL_M"] <= 2 * MHZ
        assert 2 <= v["PLL_M"] <= 63
        assert 50 <= v["PLL_N"] <= 432
        assert v["PLL_P"] in (2, 4, 6, 8)
        vco_hz = crystal_hz * v["PLL_N"] // v["PLL_M"]
        assert 100 * MHZ <= vco_hz <= 432 * MHZ
        assert hz <= most_hz
        assert hz // v["APB1_DIVIDER"] <= apb1_hz
        assert hz // v["APB2_DIVIDER"] <= 2 * apb1_hz
        assert hz <= (v["FLASH_WAITS"] + 1) * 30 * MHZ
        assert v["OVERDRIVE"] == (hz > overdrive_hz)
        return vco_hz // v["PLL_P"]

    return check


def l4(
    input_mhz: float, n_max: int, vco_mhz: int, normal: Limits, boosted: Limits
) -> Callable[[int, int, Values], int]:
    def check(source_hz: int, hz: int, v: Values) -> int:
        assert input_mhz * MHZ <= source_hz / v["PLL_M"] <= 16 * MHZ
        assert 8 <= v["PLL_N"] <= n_max
        vco_hz = source_hz * v["PLL_N"] // v["PLL_M"]
        assert vco_mhz * MHZ <= vco_hz <= 344 * MHZ
        most_mhz, step_mhz = boosted if v["BOOST"] else normal
        assert hz <= most_mhz * MHZ
        assert hz <= (v["FLASH_WAITS"] + 1) * step_mhz * MHZ
        assert v["FLASH_WAITS"] <= 5
        return vco_hz // v["PLL_R"]

    return check


def g0(
    most_mhz: int, step_mhz: int, cpu2_mhz: int = 0
) -> Callable[[int, int, Values], int]:
    def check(source_hz: int, hz: int, v: Values) -> int:
        assert 2.66 * MHZ <= source_hz / v["PLL_M"] <= 16 * MHZ
        assert 1 <= v["PLL_M"] <= 8
        assert 8 <= v["PLL_N"] <= 86
        assert 2 <= v["PLL_R"] <= 8
        vco_hz = source_hz * v["PLL_N"] // v["PLL_M"]
        assert 96 * MHZ <= vco_hz <= 344 * MHZ
        assert hz <= most_mhz * MHZ
        assert hz <= (v["FLASH_WAITS"] + 1) * step_mhz * MHZ
        if cpu2_mhz:
            assert hz // (1 + v["CPU2_HALF"]) <= cpu2_mhz * MHZ
        return vco_hz // v["PLL_R"]

    return check


def u5(source_hz: int, hz: int, v: Values) -> int:
    compared_hz = source_hz / v["PLL_M"]
    assert (8 if v["PLL_RANGE"] == 3 else 4) * MHZ <= compared_hz <= 16 * MHZ
    vco_hz = source_hz * v["PLL_N"] // v["PLL_M"]
    assert 128 * MHZ <= vco_hz <= 544 * MHZ
    assert hz <= 160 * MHZ
    assert hz <= (v["FLASH_WAITS"] + 1) * 32 * MHZ
    return vco_hz // v["PLL_R"]


def h5(source_hz: int, hz: int, v: Values) -> int:
    compared_hz = source_hz / v["PLL_M"]
    low_mhz, high_mhz = {1: (2, 4), 2: (4, 8), 3: (8, 16)}[v["PLL_RANGE"]]
    assert low_mhz * MHZ <= compared_hz <= high_mhz * MHZ
    vco_hz = source_hz * v["PLL_N"] // v["PLL_M"]
    assert 128 * MHZ <= vco_hz <= 560 * MHZ
    assert v["PLL_P"] % 2 == 0
    assert hz <= [42, 84, 126, 168, 210, 250][v["FLASH_WAITS"]] * MHZ
    assert hz <= [84, 168, 250][v["FLASH_DELAY"]] * MHZ
    return vco_hz // v["PLL_P"]


def h7(
    waits_mhz: list[int], delays_mhz: list[int]
) -> Callable[[int, int, Values], int]:
    def check(source_hz: int, hz: int, v: Values) -> int:
        assert 8 * MHZ <= source_hz / v["PLL_M"] <= 16 * MHZ
        vco_hz = source_hz * v["PLL_N"] // v["PLL_M"]
        assert 192 * MHZ <= vco_hz <= 836 * MHZ
        bus_hz = hz // v["AHB_DIVIDER"]
        assert hz <= 400 * MHZ
        assert bus_hz <= 200 * MHZ
        assert bus_hz // v["APB_OF_AHB"] <= 100 * MHZ
        assert bus_hz <= waits_mhz[v["FLASH_WAITS"]] * MHZ
        assert bus_hz <= delays_mhz[v["FLASH_DELAY"]] * MHZ
        return vco_hz // v["PLL_P"]

    return check


def rp2(most_hz: int) -> Callable[[int, int, Values], int]:
    def check(crystal_hz: int, hz: int, v: Values) -> int:
        vco_hz = crystal_hz * v["PLL_FEEDBACK"]
        assert 5 * MHZ <= crystal_hz <= 15 * MHZ
        assert 16 <= v["PLL_FEEDBACK"] <= 320
        assert 750 * MHZ <= vco_hz <= 1600 * MHZ
        assert 1 <= v["PLL_SECOND"] <= v["PLL_FIRST"] <= 7
        assert hz <= most_hz
        assert abs(v["CRYSTAL_DELAY"] * 256 - crystal_hz / 1000) <= 128
        return vco_hz // (v["PLL_FIRST"] * v["PLL_SECOND"])

    return check


def fe310(crystal_hz: int, hz: int, v: Values) -> int:
    reference_hz = crystal_hz / v["PLL_R"]
    assert 6 * MHZ <= reference_hz <= 12 * MHZ
    assert v["PLL_F"] % 2 == 0
    assert 2 <= v["PLL_F"] <= 128
    vco_hz = crystal_hz * v["PLL_F"] // v["PLL_R"]
    assert 384 * MHZ <= vco_hz <= 768 * MHZ
    assert 48 * MHZ <= hz <= 320 * MHZ
    assert hz / (2 * v["FLASH_HALF_DIVIDER"]) <= 50 * MHZ
    return vco_hz // v["PLL_Q"]


def nrf52(crystal_hz: int, hz: int, v: Values) -> int:
    assert (crystal_hz, v) == (32 * MHZ, {})
    return 64 * MHZ


FORMULAS: dict[str, Callable[[int, int, Values], int]] = {
    "stm32f0": f1(48 * MHZ, 48 * MHZ),
    "stm32f100": f1(24 * MHZ, 24 * MHZ),
    "stm32f103": f1(72 * MHZ, 36 * MHZ),
    "stm32f303": f1(72 * MHZ, 36 * MHZ),
    "stm32f401": f4(84 * MHZ, 42 * MHZ, 84 * MHZ),
    "stm32f405": f4(168 * MHZ, 42 * MHZ, 168 * MHZ),
    "stm32f411": f4(100 * MHZ, 50 * MHZ, 100 * MHZ),
    "stm32f446": f4(180 * MHZ, 45 * MHZ, 168 * MHZ),
    "stm32f746": f4(216 * MHZ, 54 * MHZ, 180 * MHZ),
    "stm32g0": g0(64, 24),
    "stm32g4": l4(2.66, 127, 96, (150, 30), (170, 34)),
    "stm32h5": h5,
    "stm32h723": h7([67, 133, 200], [67, 133, 200]),
    "stm32h743": h7([70, 140, 210], [70, 185, 210]),
    "stm32l4": l4(4, 86, 64, (80, 16), (0, 0)),
    "stm32l4r5": l4(2.66, 127, 64, (80, 16), (120, 20)),
    "stm32u575": u5,
    "stm32wb": g0(64, 18, 32),
    "stm32wl": g0(48, 18),
    "nrf52": nrf52,
    "rp2040": rp2(133 * MHZ),
    "rp2350": rp2(150 * MHZ),
    "fe310": fe310,
}


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_clock_settings_are_exact_and_within_the_limits_of_the_manual(
    name: str,
) -> None:
    (tree,) = (trees[name] for trees in CLOCK_TREES.values() if name in trees)
    sources = [(hz, True) for hz in CRYSTALS if tree.accepts_crystal]
    if tree.internal_hz is not None:
        sources.append((tree.internal_hz, False))
    reached = refused = 0
    for source_hz, is_crystal in sources:
        for hz in range(4 * MHZ, 484 * MHZ, 4 * MHZ):
            try:
                found = tree.solve(source_hz, hz, from_crystal=is_crystal)
            except ValueError:
                refused += 1
                continue
            reached += 1
            settings = dict(found)
            assert settings.pop("FROM_CRYSTAL", is_crystal) == is_crystal
            assert FORMULAS[name](source_hz, hz, settings) == hz
    assert refused > 20
    assert reached >= (1 if name == "nrf52" else 5)


def test_every_clock_tree_has_a_formula() -> None:
    assert {name for trees in CLOCK_TREES.values() for name in trees} == set(FORMULAS)


@pytest.mark.parametrize(
    ("crystal_hz", "hz", "limit"),
    [
        (3 * MHZ, 24 * MHZ, "the crystal has"),
        (25 * MHZ, 24 * MHZ, "the crystal has"),
        (5 * MHZ, 15 * MHZ, "the processor runs at"),
        (8 * MHZ, 32 * MHZ, "the processor runs at"),
        (7 * MHZ, 24 * MHZ, "the PLL multiplies"),
        (24 * MHZ, 24 * MHZ, "the PLL multiplies"),
    ],
)
def test_a_frequency_out_of_range_names_the_limit(
    crystal_hz: int, hz: int, limit: str
) -> None:
    with pytest.raises(ValueError, match=limit):
        CLOCK_TREES["cortex_m"]["stm32f100"].solve(crystal_hz, hz, from_crystal=True)


def test_a_board_without_a_clock_driver_stays_at_its_reset_clock() -> None:
    assert load_board("microbit").clock is None


def clock_of(name: str) -> Clock:
    clock = load_board(name).clock
    assert clock is not None
    return clock


def test_the_boards_run_at_their_rated_clocks() -> None:
    rated = {b.name: b.clock.hz // MHZ for b in list_boards() if b.clock is not None}
    assert rated == {
        "bluepill-f103": 72,
        "disco-f746ng": 216,
        "hifive1-revb": 320,
        "netduinoplus2": 168,
        "nrf52840-dk": 64,
        "nucleo-h743zi": 400,
        "nucleo-l4r5zi": 120,
        "nucleo-u575zi-q": 160,
        "rpi-pico": 125,
        "rpi-pico2": 150,
        "stm32vldiscovery": 24,
    }


def test_settings_match_the_examples_of_the_manuals() -> None:
    assert dict(clock_of("stm32vldiscovery").settings) == {
        "FROM_CRYSTAL": 1,
        "PLL_MULTIPLIER": 3,
    }
    assert dict(clock_of("netduinoplus2").settings) == {
        "FROM_CRYSTAL": 1,
        "PLL_M": 25,
        "PLL_N": 336,
        "PLL_P": 2,
        "APB1_DIVIDER": 4,
        "APB2_DIVIDER": 2,
        "FLASH_WAITS": 5,
        "OVERDRIVE": 0,
        "SCALE_1": 0,
        "DATA_CACHE": 1,
    }
    pico = dict(clock_of("rpi-pico").settings)
    assert (pico["PLL_FEEDBACK"], pico["PLL_FIRST"], pico["PLL_SECOND"]) == (125, 6, 2)


@pytest.mark.parametrize("board", [*list_boards(), *list_chips()], ids=lambda b: b.name)
def test_every_console_is_within_two_percent_of_its_baud_rate(board) -> None:  # type: ignore[no-untyped-def]
    """Check the divider of each driver at the reset clock and at the raised clock."""
    if board.console.driver == "none" or board.is_host:
        return
    if board.run.kind == "qemu" and board.clock is None:
        return
    baud = 115200
    rings = board.console.driver in (
        "rp2_uart",
        "sifive_uart",
    )  # reset clocks off by 10 percent
    clocks = {board.console_raised_hz} | (set() if rings else {board.console_hz})
    for hz in clocks:
        divider = (hz * board.console.steps + baud // 2) // baud
        assert abs(hz * board.console.steps / divider / baud - 1) < 0.02
