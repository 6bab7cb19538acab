"""Settings of the chip's clock tree for the frequency that start-up sets.

Settings are exact and within the limits of the manual and data sheet named at each
entry of `CLOCK_TREES`. Of several solutions, the one with the highest comparison
frequency is chosen, then the one with the lowest PLL output.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from firmwright.base.rounding import divide_up

Settings = tuple[tuple[str, int], ...]
_MHZ: Final = 1_000_000
_NO_SETTING: Final = "no setting of the PLL gives it within its limits"
_STM32F1_INTERNAL_HZ: Final = 4 * _MHZ
"""The PLL of these series takes half of the internal oscillator."""
_STM32_INTERNAL_HZ: Final = 16 * _MHZ


@dataclass(frozen=True, slots=True)
class ClockTree:
    """A clock driver with its settings and limits.

    The source is a crystal or, at the frequency `internal_hz`, an internal oscillator;
    with both, the latter is used unless the board states its crystal.
    """

    driver: str
    settings: Callable[[int, int], Settings]
    processor_mhz: tuple[int, int]
    crystal_mhz: tuple[int, int] = (0, 0)
    internal_hz: int | None = None

    @property
    def accepts_crystal(self) -> bool:
        return self.crystal_mhz != (0, 0)

    def solve(self, source_hz: int, hz: int, *, from_crystal: bool) -> Settings:
        """Return the settings; ValueError names a violated limit."""
        if from_crystal and not _within(source_hz, self.crystal_mhz):
            raise ValueError(
                f"the crystal has {_format_range(self.crystal_mhz)} on this chip"
            )
        if not _within(hz, self.processor_mhz):
            limits = _format_range(self.processor_mhz)
            raise ValueError(f"the processor runs at {limits} on this chip")
        settings = self.settings(source_hz, hz)
        if self.internal_hz is not None and self.accepts_crystal:
            settings = (("FROM_CRYSTAL", int(from_crystal)), *settings)
        return settings


@dataclass(frozen=True, slots=True)
class Pll:
    """A PLL: source / m * n / p, with the allowed factors and limits in MHz."""

    m: range
    n: range
    p: Iterable[int]
    compared_mhz: tuple[float, float]
    output_mhz: tuple[float, float]

    def solve(self, source_hz: int, hz: int) -> tuple[int, int, int]:
        for m in self.m:
            compared_hz, rest = divmod(source_hz, m)
            if rest or not _within(compared_hz, self.compared_mhz):
                continue
            for p in self.p:
                n, rest = divmod(hz * p, compared_hz)
                if rest == 0 and n in self.n and _within(hz * p, self.output_mhz):
                    return m, n, p
        raise ValueError(_NO_SETTING)


def _within(hz: int, mhz: tuple[float, float]) -> bool:
    return mhz[0] * _MHZ <= hz <= mhz[1] * _MHZ


def _format_range(mhz: tuple[int, int]) -> str:
    low, high = mhz
    return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def _stm32f100(source_hz: int, hz: int) -> Settings:
    return (("PLL_MULTIPLIER", _multiplier(source_hz, hz)),)


def _stm32f0(source_hz: int, hz: int) -> Settings:
    multiplier, waits = _multiplier(source_hz, hz), _waits(hz, 24 * _MHZ)
    dividers = (("APB1_DIVIDER", 1), ("APB2_DIVIDER", 1))
    return (("PLL_MULTIPLIER", multiplier), ("FLASH_WAITS", waits), *dividers)


def _stm32f103(source_hz: int, hz: int) -> Settings:
    multiplier, waits = _multiplier(source_hz, hz), _waits(hz, 24 * _MHZ)
    dividers = (("APB1_DIVIDER", _divider(hz, 36 * _MHZ)), ("APB2_DIVIDER", 1))
    return (("PLL_MULTIPLIER", multiplier), ("FLASH_WAITS", waits), *dividers)


_STM32F4_PLL: Final = Pll(
    m=range(2, 64),
    n=range(50, 433),
    p=(2, 4, 6, 8),
    compared_mhz=(1, 2),
    output_mhz=(100, 432),
)


def _stm32f4(
    source_hz: int,
    hz: int,
    *,
    apb1_hz: int,
    overdrive_hz: int = 180 * _MHZ,
    scale_1: bool = False,
    data_cache: bool = True,
) -> Settings:
    """Return the settings; `scale_1` if the regulator is not at scale 1 after reset."""
    m, n, p = _STM32F4_PLL.solve(source_hz, hz)
    return (
        ("PLL_M", m),
        ("PLL_N", n),
        ("PLL_P", p),
        ("APB1_DIVIDER", _divider(hz, apb1_hz)),
        ("APB2_DIVIDER", _divider(hz, 2 * apb1_hz)),
        ("FLASH_WAITS", _waits(hz, 30 * _MHZ)),
        ("OVERDRIVE", int(hz > overdrive_hz)),
        ("SCALE_1", int(scale_1)),
        ("DATA_CACHE", int(data_cache)),
    )


_STM32F401: Final = partial(_stm32f4, apb1_hz=42 * _MHZ)
_STM32F411: Final = partial(_stm32f4, apb1_hz=50 * _MHZ, scale_1=True)
_STM32F446: Final = partial(_stm32f4, apb1_hz=45 * _MHZ, overdrive_hz=168 * _MHZ)
_STM32F746: Final = partial(_stm32f4, apb1_hz=54 * _MHZ, data_cache=False)

_STM32L4_PLL: Final = Pll(
    m=range(1, 9),
    n=range(8, 87),
    p=(2, 4, 6, 8),
    compared_mhz=(4, 16),
    output_mhz=(64, 344),
)
_STM32L4R5_PLL: Final = replace(
    _STM32L4_PLL, m=range(1, 17), n=range(8, 128), compared_mhz=(2.66, 16)
)
_STM32G4_PLL: Final = replace(_STM32L4R5_PLL, output_mhz=(96, 344))


def _stm32l4(
    source_hz: int, hz: int, *, pll: Pll, normal_hz: int, steps_hz: tuple[int, int]
) -> Settings:
    """Return the settings; the regulator is boosted above `normal_hz`.

    The flash needs one more wait state for every `steps_hz`, without and with boost.
    """
    m, n, r = pll.solve(source_hz, hz)
    boost = hz > normal_hz
    waits = _waits(hz, steps_hz[boost])
    return (
        ("PLL_M", m),
        ("PLL_N", n),
        ("PLL_R", r),
        ("BOOST", int(boost)),
        ("FLASH_WAITS", waits),
    )


@dataclass(frozen=True, slots=True)
class _Stm32G0:
    """What differs between the series with the clock tree of the G0."""

    rcc: int
    flash: int
    switch_pll: int
    switch_mask: int
    pll: Pll
    step_hz: int
    cpu2_max_hz: int = 0
    data_cache: bool = True

    def settings(self, source_hz: int, hz: int) -> Settings:
        m, n, r = self.pll.solve(source_hz, hz)
        return (
            ("RCC", self.rcc),
            ("FLASH", self.flash),
            ("SWITCH_PLL", self.switch_pll),
            ("SWITCH_MASK", self.switch_mask),
            ("SWITCHED_BIT", self.switch_mask.bit_length()),
            ("PLL_M", m),
            ("PLL_N", n),
            ("PLL_R", r),
            ("FLASH_WAITS", _waits(hz, self.step_hz)),
            ("DATA_CACHE", int(self.data_cache)),
            ("CPU2_HALF", int(0 < self.cpu2_max_hz < hz)),
        )

    def tree(self, max_mhz: int) -> ClockTree:
        internal_hz = _STM32_INTERNAL_HZ
        settings = self.settings
        return ClockTree("stm32g0", settings, (8, max_mhz), internal_hz=internal_hz)


_STM32G0_PLL: Final = Pll(
    m=range(1, 9),
    n=range(8, 87),
    p=range(2, 9),
    compared_mhz=(2.66, 16),
    output_mhz=(96, 344),
)
_STM32G0: Final = _Stm32G0(
    rcc=0x4002_1000,
    flash=0x4002_2000,
    switch_pll=2,
    switch_mask=7,
    pll=_STM32G0_PLL,
    step_hz=24 * _MHZ,
    data_cache=False,
)
_STM32WL: Final = _Stm32G0(
    rcc=0x5800_0000,
    flash=0x5800_4000,
    switch_pll=3,
    switch_mask=3,
    pll=_STM32G0_PLL,
    step_hz=18 * _MHZ,
)
_STM32WB: Final = replace(_STM32WL, cpu2_max_hz=32 * _MHZ)


def _stm32u575(source_hz: int, hz: int) -> Settings:
    pll = Pll(range(1, 17), range(4, 513), range(2, 129, 2), (4, 16), (128, 544))
    m, n, r = pll.solve(source_hz, hz)
    input_range = 3 if source_hz // m >= 8 * _MHZ else 0
    return (
        ("PLL_M", m),
        ("PLL_N", n),
        ("PLL_R", r),
        ("PLL_RANGE", input_range),
        ("FLASH_WAITS", _waits(hz, 32 * _MHZ)),
    )


def _stm32h5(source_hz: int, hz: int) -> Settings:
    """Return the settings; PLL_RANGE tells the class of the comparison frequency."""
    pll = Pll(range(1, 64), range(4, 513), range(2, 129, 2), (2, 16), (128, 560))
    m, n, p = pll.solve(source_hz, hz)
    compared_hz = source_hz // m
    return (
        ("PLL_M", m),
        ("PLL_N", n),
        ("PLL_P", p),
        ("PLL_RANGE", 1 + (compared_hz >= 4 * _MHZ) + (compared_hz >= 8 * _MHZ)),
        ("FLASH_WAITS", _waits(hz, 42 * _MHZ)),
        ("FLASH_DELAY", _waits(hz, 84 * _MHZ)),
    )


def _stm32h7(
    source_hz: int, hz: int, *, step_hz: int, delays_hz: tuple[int, ...]
) -> Settings:
    """Return the settings for voltage scale 1.

    The AHB has half of the clock, the APBs have a quarter. The flash needs one more
    wait state for every `step_hz` of its bus, whose clocks with a programming delay of
    0, 1 and 2 end at `delays_hz`.
    """
    pll = Pll(range(1, 64), range(4, 513), range(2, 129, 2), (8, 16), (192, 836))
    m, n, p = pll.solve(source_hz, hz)
    ahb_divider = _divider(hz, 200 * _MHZ)
    bus_hz = hz // ahb_divider
    delay = next(i for i, top_hz in enumerate(delays_hz) if bus_hz <= top_hz)
    return (
        ("PLL_M", m),
        ("PLL_N", n),
        ("PLL_P", p),
        ("AHB_DIVIDER", ahb_divider),
        ("APB_OF_AHB", _divider(bus_hz, 100 * _MHZ)),
        ("FLASH_WAITS", _waits(bus_hz, step_hz)),
        ("FLASH_DELAY", delay),
    )


_STM32H723: Final = partial(
    _stm32h7,
    step_hz=66_700_000,
    delays_hz=(67 * _MHZ, 133 * _MHZ, 200 * _MHZ),
)
_STM32H743: Final = partial(
    _stm32h7, step_hz=70 * _MHZ, delays_hz=(70 * _MHZ, 185 * _MHZ, 210 * _MHZ)
)


def _rp2(crystal_hz: int, hz: int) -> Settings:
    """Solve hz = crystal * feedback / (first * second) with the highest VCO clock."""
    ways = []
    for first in range(1, 8):
        for second in range(1, first + 1):
            feedback, rest = divmod(hz * first * second, crystal_hz)
            vco_hz = feedback * crystal_hz
            if rest or not 16 <= feedback <= 320:
                continue
            if 750 * _MHZ <= vco_hz <= 1600 * _MHZ:
                ways.append((vco_hz, first, second, feedback))
    if not ways:
        raise ValueError(_NO_SETTING)
    _, first, second, feedback = max(ways)
    return (
        ("PLL_FEEDBACK", feedback),
        ("PLL_FIRST", first),
        ("PLL_SECOND", second),
        ("CRYSTAL_DELAY", (crystal_hz // 1000 + 128) // 256),
    )


def _fe310(crystal_hz: int, hz: int) -> Settings:
    """Return the settings; the flash reads with command 03h at up to 50 MHz.

    The clock of the flash is divided by 2 * FLASH_HALF_DIVIDER.
    """
    pll = Pll(range(1, 5), range(2, 129, 2), (2, 4, 8), (6, 12), (384, 768))
    r, f, q = pll.solve(crystal_hz, hz)
    flash_half_divider = divide_up(hz, 2 * 50 * _MHZ)
    return (
        ("PLL_R", r),
        ("PLL_F", f),
        ("PLL_Q", q),
        ("FLASH_HALF_DIVIDER", flash_half_divider),
    )


def _multiplier(source_hz: int, hz: int) -> int:
    multiplier, rest = divmod(hz, source_hz)
    if rest or not 2 <= multiplier <= 16:
        raise ValueError("the PLL multiplies its source by 2 to 16")
    return multiplier


def _divider(hz: int, most_hz: int) -> int:
    """Return the least power of two that divides `hz` to at most `most_hz`."""
    return next(d for d in (1, 2, 4, 8, 16) if hz <= most_hz * d)


def _waits(hz: int, step_hz: int) -> int:
    """Return the wait states of a flash that needs one more for every `step_hz`."""
    return divide_up(hz, step_hz) - 1


def _stm32f1_tree(
    settings: Callable[[int, int], Settings], max_mhz: int, crystal_mhz: tuple[int, int]
) -> ClockTree:
    internal_hz = _STM32F1_INTERNAL_HZ
    return ClockTree("stm32f1", settings, (16, max_mhz), crystal_mhz, internal_hz)


def _stm32f4_tree(settings: Callable[[int, int], Settings], max_mhz: int) -> ClockTree:
    return ClockTree("stm32f4", settings, (24, max_mhz), (4, 26), _STM32_INTERNAL_HZ)


def _stm32l4_tree(
    pll: Pll, max_mhz: int, normal_mhz: int, steps_mhz: tuple[int, int]
) -> ClockTree:
    steps_hz = (steps_mhz[0] * _MHZ, steps_mhz[1] * _MHZ)
    settings = partial(
        _stm32l4, pll=pll, normal_hz=normal_mhz * _MHZ, steps_hz=steps_hz
    )
    return ClockTree("stm32l4", settings, (8, max_mhz), internal_hz=_STM32_INTERNAL_HZ)


CLOCK_TREES: Final[Mapping[str, Mapping[str, ClockTree]]] = {
    "host": {},
    "cortex_m": {
        # RM0091, RM0360, 6.2 and 3.2; data sheets
        "stm32f0": _stm32f1_tree(_stm32f0, 48, (4, 32)),
        # RM0041, 6.3.2; data sheet
        "stm32f100": _stm32f1_tree(_stm32f100, 24, (4, 24)),
        # RM0008, 7.3.2 and 3.3.3; data sheet
        "stm32f103": _stm32f1_tree(_stm32f103, 72, (4, 16)),
        # RM0316, 9.4.2 and 4.5.1; data sheet
        "stm32f303": _stm32f1_tree(_stm32f103, 72, (4, 32)),
        # at 2.7 to 3.6 V: RM0368, 6.3.2 and 3.4.1; data sheet
        "stm32f401": _stm32f4_tree(_STM32F401, 84),
        # at 2.7 to 3.6 V: RM0090, 6.3.2 and 3.5.1; data sheet
        "stm32f405": _stm32f4_tree(_STM32F401, 168),
        # at 2.7 to 3.6 V: RM0383, 6.3.2 and 3.4.1; data sheet
        "stm32f411": _stm32f4_tree(_STM32F411, 100),
        # at 2.7 to 3.6 V: RM0390, 6.3.2 and 3.4.1; data sheet
        "stm32f446": _stm32f4_tree(_STM32F446, 180),
        # at 2.7 to 3.6 V: RM0385, 5.3.2 and 3.3.2; RM0410; data sheets
        "stm32f746": _stm32f4_tree(_STM32F746, 216),
        # voltage range 1: RM0444, 5.4.4 and 3.3.4
        "stm32g0": _STM32G0.tree(64),
        # voltage range 1: RM0440, 7.4.4 and 3.3.3
        "stm32g4": _stm32l4_tree(_STM32G4_PLL, 170, 150, (30, 34)),
        # voltage scale 0: RM0481, chapter 11 and table 37
        "stm32h5": ClockTree("stm32h5", _stm32h5, (16, 250), internal_hz=32 * _MHZ),
        # voltage scale 1: RM0468, 8.5.5 and table 16
        "stm32h723": ClockTree("stm32h7", _STM32H723, (50, 400), internal_hz=64 * _MHZ),
        # voltage scale 1: RM0433, 8.5.5 and 4.3.8
        "stm32h743": ClockTree("stm32h7", _STM32H743, (50, 400), internal_hz=64 * _MHZ),
        # voltage range 1: RM0351 and RM0394, 6.2 and 3.3.3
        "stm32l4": _stm32l4_tree(_STM32L4_PLL, 80, 80, (16, 16)),
        # voltage range 1: RM0432, 6.2.5 and 3.3.3
        "stm32l4r5": _stm32l4_tree(_STM32L4R5_PLL, 120, 80, (16, 20)),
        # voltage range 1: RM0456, 11.4.5 and 7.3.3
        "stm32u575": ClockTree(
            "stm32u5", _stm32u575, (8, 160), internal_hz=_STM32_INTERNAL_HZ
        ),
        # voltage range 1: RM0434, chapters 3 and 8
        "stm32wb": _STM32WB.tree(64),
        # voltage range 1: RM0453 and RM0461, chapters 3 or 4 and 6 or 7
        "stm32wl": _STM32WL.tree(48),
        # the crystal only adds precision
        "nrf52": ClockTree("nrf52", lambda *_: (), (64, 64), (32, 32)),
        # data sheet, section 2.18
        "rp2040": ClockTree("rp2", _rp2, (16, 133), (5, 15)),
        # data sheet, section 8.6
        "rp2350": ClockTree("rp2", _rp2, (16, 150), (5, 15)),
    },
    # manual, 6.6
    "riscv32": {"fe310": ClockTree("fe310", _fe310, (48, 320), (10, 20))},
}
"""Clock trees by port and by the driver name in `[clock]`."""
