"""The time of a run on a chip: modeled cycles, and the range that measurements support.

The modeled cycles of a core differ from published ones by the factors in
`core_timing.toml`; a board's own calibration replaces them. For a core without
published figures the range is assumed, and wider than that of any core with figures.
"""

from dataclasses import dataclass
from enum import StrEnum

from firmwright.boards import Board
from firmwright.targets.core_timing import CoreTiming, core_timings

_ASSUMED_FACTORS = (0.8, 1.25)
"""The factors of a core without figures: twice the largest error of those with any."""


class RangeOrigin(StrEnum):
    """Where the range of a time comes from."""

    CALIBRATED = "calibrated"
    """This board was measured (`calibrate`)."""
    PUBLISHED = "published"
    """Cycles of this core are published (benchmarks/silicon.csv)."""
    ASSUMED = "assumed"
    """Nothing is published for this core."""


@dataclass(frozen=True, slots=True)
class RunTime:
    """The modeled time of a run; `most_cycles` is None if flash is not modeled.

    `chip` and `clock_hz` are those for which the cycles hold.
    """

    cycles: int
    least_cycles: int
    most_cycles: int | None
    clock_hz: int
    chip: str
    origin: RangeOrigin

    @property
    def least_ms(self) -> float:
        return self._milliseconds(self.least_cycles)

    @property
    def most_ms(self) -> float | None:
        if self.most_cycles is None:
            return None
        return self._milliseconds(self.most_cycles)

    def _milliseconds(self, cycles: int) -> float:
        return 1e3 * cycles / self.clock_hz

    @property
    def milliseconds(self) -> str:
        """Return the range without its unit."""
        least = format_ms(self.least_ms)
        if self.most_ms is None:
            return f"at least {least}"
        most = format_ms(self.most_ms)
        return least if least == most else f"{least} to {most}"

    def __str__(self) -> str:
        place = describe_place(self.clock_hz, self.chip)
        return f"modeled {self.milliseconds} ms {place}"

    @property
    def reason(self) -> str:
        """Say what the range is based on, in a sentence without a period."""
        if self.most_cycles is None:
            return "the flash of the chip is not described, so it may take longer"
        match self.origin:
            case RangeOrigin.CALIBRATED:
                return "the range of this board's calibration"
            case RangeOrigin.PUBLISHED:
                return "the range of the model's errors against published cycles"
            case RangeOrigin.ASSUMED:
                return "an assumed range, as no published cycles check this model"


def describe_place(clock_hz: int, chip: str) -> str:
    """Return the clock and the chip for which a time holds."""
    return f"at {clock_hz / 1e6:g} MHz on {chip}"


def format_ms(milliseconds: float) -> str:
    """Format a time with three digits, as a range supports no more."""
    if milliseconds >= 100:
        return f"{milliseconds:,.0f}"
    return f"{milliseconds:.3g}" if milliseconds else "0"


def core_timing_of(board: Board) -> CoreTiming | None:
    """Return the timing of a board's core, None if its pipeline is not known."""
    return core_timings().get(board.pipeline or board.core)


def run_time(cycles: int, board: Board) -> RunTime | None:
    """Return the time of modeled cycles on a board; None without a known clock.

    The cycles include the scale of the board's calibration.
    """
    clock = board.modeled_hz
    timing = core_timing_of(board)
    if not clock or timing is None:
        return None
    low, high, origin = _factors(board, timing)
    is_open = board.calibration is None and board.flash.wait_states is None
    return RunTime(
        cycles,
        round(low * cycles),
        None if is_open else round(high * cycles),
        clock,
        board.chip,
        origin,
    )


def _factors(board: Board, timing: CoreTiming) -> tuple[float, float, RangeOrigin]:
    """Return the range of true cycles divided by modeled ones, and its origin."""
    own = board.calibration
    if own is not None:
        return own.least / own.scale, own.most / own.scale, RangeOrigin.CALIBRATED
    if any(timing.silicon):
        return *timing.silicon, RangeOrigin.PUBLISHED
    return *_ASSUMED_FACTORS, RangeOrigin.ASSUMED
