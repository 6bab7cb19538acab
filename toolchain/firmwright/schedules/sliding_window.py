"""The order in which a window that slides over an axis reads input lines."""

from dataclasses import dataclass
from functools import cached_property

from firmwright.base.grouping import group_pairs
from firmwright.base.rounding import divide_up
from firmwright.schedules.window_bounds import WindowAxis


@dataclass(frozen=True, slots=True)
class InputLine:
    """An input line: index, uses (output, tap), and outputs that start or end there."""

    index: int
    uses: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class SlidingWindow:
    """The order of input lines along an axis, in a prologue, a loop and an epilogue."""

    axis: WindowAxis

    @property
    def accumulators(self) -> int:
        return min(divide_up(self.axis.taps, self.axis.stride), len(self.axis.outputs))

    @cached_property
    def lines(self) -> list[InputLine]:
        axis = self.axis
        seen = group_pairs(
            (output * axis.stride - axis.before + tap, (output, tap))
            for output in axis.outputs
            for tap in axis.valid(output)
        )
        lines = []
        for index in range(min(seen), max(seen) + 1):
            uses = seen.get(index, [])
            starts = tuple(o for o, tap in uses if tap == axis.valid(o).start)
            ends = tuple(o for o, tap in uses if tap == axis.valid(o).stop - 1)
            lines.append(InputLine(index, tuple(uses), starts, ends))
        return lines

    def is_interior(self, line: InputLine) -> bool:
        """Whether all outputs that can use the line exist with all taps."""
        axis = self.axis
        for output, _ in line.uses:
            if len(axis.valid(output)) < axis.taps:
                return False
        interior_uses = 0
        for tap in range(axis.taps):
            if (line.index + axis.before - tap) % axis.stride == 0:
                interior_uses += 1
        return len(line.uses) == interior_uses

    @cached_property
    def parts(self) -> tuple[list[InputLine], list[InputLine], int, list[InputLine]]:
        """Return lines before the loop, per iteration, iterations and lines after."""
        period = self.accumulators * self.axis.stride
        flags = [self.is_interior(line) for line in self.lines]
        first = flags.index(True) if True in flags else len(flags)
        # An iteration begins with an output, so that accumulators resume their roles.
        while first < len(flags) and flags[first] and not self.lines[first].starts:
            first += 1
        last = first
        while last < len(flags) and flags[last]:
            last += 1
        iterations = (last - first) // period
        if iterations < 2:
            return self.lines, [], 0, []
        end = first + iterations * period
        return (
            self.lines[:first],
            self.lines[first : first + period],
            iterations,
            self.lines[end:],
        )
