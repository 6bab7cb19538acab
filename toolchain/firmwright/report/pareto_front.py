"""The programs that no other beats in RAM, flash and time, and their plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

LEFT, TOP, RIGHT, BOTTOM = 96.0, 20.0, 34.0, 54.0
WIDTH, HEIGHT = 640.0, 340.0
RADII = (6.0, 17.0)
"""The radii in pixels of the programs with the least and the most flash."""
TICKS = 5
"""The axes have about this number of intervals."""


@dataclass(frozen=True, slots=True)
class ParetoProgram:
    """A program with its predicted costs, and the options that compile it.

    `is_current` is set for the program of the report.
    """

    options: str
    command: str
    workspace_bytes: int
    flash_bytes: int
    instructions: int
    cycles: int | None = None
    is_current: bool = False

    @property
    def duration(self) -> int:
        """Return the modeled cycles if they are known, else the instructions."""
        return self.instructions if self.cycles is None else self.cycles

    @property
    def costs(self) -> tuple[int, int, int]:
        return self.workspace_bytes, self.flash_bytes, self.duration

    def beats(self, other: "ParetoProgram") -> bool:
        """Return whether this one is better in a cost and worse in none."""
        pairs = list(zip(self.costs, other.costs, strict=True))
        return all(a <= b for a, b in pairs) and self.costs != other.costs


def pareto_front(programs: Sequence[ParetoProgram]) -> tuple[ParetoProgram, ...]:
    """Return the programs that none beats, and the current one, fastest first.

    Of programs with equal costs the first one stays.
    """
    front: list[ParetoProgram] = []
    seen: set[tuple[int, int, int]] = set()
    for program in sorted(programs, key=lambda item: not item.is_current):
        is_beaten = any(other.beats(program) for other in programs)
        if program.costs in seen or (is_beaten and not program.is_current):
            continue
        seen.add(program.costs)
        front.append(program)
    return tuple(sorted(front, key=lambda item: (item.duration, item.costs)))


@dataclass(frozen=True, slots=True)
class PlottedProgram:
    """A program as a circle."""

    program: ParetoProgram
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A labeled place of an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class FrontPlot:
    """RAM to the right and time upwards, with flash as the size of circles.

    `unit` is that of time: modeled cycles, or instructions of cores without a model.
    """

    unit: str
    points: tuple[PlottedProgram, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: float = LEFT + WIDTH + RIGHT
    height: float = TOP + HEIGHT + BOTTOM


def plot_front(front: Sequence[ParetoProgram]) -> FrontPlot:
    """Return the plot of at least one program."""
    x_step, x_first, x_last = _axis([item.workspace_bytes for item in front])
    y_step, y_first, y_last = _axis([item.duration for item in front])
    flash = [item.flash_bytes for item in front]
    least, most = min(flash), max(flash)

    def x(value: int) -> float:
        return LEFT + WIDTH * (value - x_first) / (x_last - x_first)

    def y(value: int) -> float:
        return TOP + HEIGHT * (1 - (value - y_first) / (y_last - y_first))

    points: list[PlottedProgram] = []
    for item in front:
        share = (item.flash_bytes - least) / ((most - least) or 1)
        radius = RADII[0] + (RADII[1] - RADII[0]) * sqrt(share)
        point = PlottedProgram(item, x(item.workspace_bytes), y(item.duration), radius)
        points.append(point)
    # Large circles are below small ones, so that each can be pointed at.
    points.sort(key=lambda point: -point.radius)
    x_ticks = [
        Tick(x(value), f"{value:,}") for value in range(x_first, x_last + 1, x_step)
    ]
    y_ticks = [
        Tick(y(value), f"{value:,}") for value in range(y_first, y_last + 1, y_step)
    ]
    unit = "instructions" if front[0].cycles is None else "modeled cycles"
    return FrontPlot(unit, tuple(points), tuple(x_ticks), tuple(y_ticks))


def _axis(values: Sequence[int]) -> tuple[int, int, int]:
    """Return the step of an axis, and its ends, which are multiples of the step."""
    span = max(max(values) - min(values), max(values) // 10, 1)
    step = nice_step(span, TICKS)
    first = max(0, (min(values) - step // 3) // step * step)
    last = -(-(max(values) + step // 3) // step) * step
    return step, first, max(last, first + step)


def nice_step(span: int, intervals: int) -> int:
    """Return the first of 1, 2, 5, 10, ... that covers a span in that many steps."""
    unit = 1
    while True:
        for digit in (1, 2, 5):
            if span <= intervals * digit * unit:
                return digit * unit
        unit *= 10
