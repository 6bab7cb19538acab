"""The arithmetic of clock trees against the limits of the chips' manuals."""

import pytest

from firmwright.boards import load_board
from firmwright.boards.clock import stm32f100_settings

MHZ = 1_000_000


def test_every_frequency_that_the_f100s_pll_takes_comes_out_exactly() -> None:
    reached = 0
    for crystal_hz in range(3 * MHZ, 26 * MHZ, MHZ // 2):
        for hz in range(15 * MHZ, 26 * MHZ, MHZ // 2):
            try:
                ((name, multiplier),) = stm32f100_settings(crystal_hz, hz)
            except ValueError:
                continue
            reached += 1
            assert name == "PLL_MULTIPLIER"
            assert crystal_hz * multiplier == hz
            assert 2 <= multiplier <= 16
            assert 4 * MHZ <= crystal_hz <= 24 * MHZ
            assert 16 * MHZ <= hz <= 24 * MHZ
    assert reached > 20


@pytest.mark.parametrize(
    ("crystal_hz", "hz", "limit"),
    [
        (3 * MHZ, 24 * MHZ, "the crystal has"),
        (25 * MHZ, 24 * MHZ, "the crystal has"),
        (5 * MHZ, 15 * MHZ, "the PLL gives"),
        (8 * MHZ, 32 * MHZ, "the PLL gives"),
        (7 * MHZ, 24 * MHZ, "the PLL multiplies"),
        (24 * MHZ, 24 * MHZ, "the PLL multiplies"),
    ],
)
def test_a_frequency_beyond_the_f100s_limits_names_the_limit(
    crystal_hz: int, hz: int, limit: str
) -> None:
    with pytest.raises(ValueError, match=limit):
        stm32f100_settings(crystal_hz, hz)


def test_a_board_without_a_clock_driver_stays_at_its_reset_clock() -> None:
    assert load_board("microbit").clock is None


def test_the_discovery_board_raises_its_clock_to_the_chips_limit() -> None:
    clock = load_board("stm32vldiscovery").clock
    assert clock is not None
    assert (clock.hz, clock.settings) == (24 * MHZ, (("PLL_MULTIPLIER", 3),))
