"""Candidates: programs of a model from the fastest to the one that takes least, as modules.

In: the alternatives of every call, best first, the row kernels of those that have some, and what
the pipeline's planner says of a module. Out: `Candidate`s, the fastest first. Parts are priced by
arithmetic at first; where the planner says that one needs more, its price is corrected and the
programs are sought again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.aot_main import build_main
from firmwright.select.choice import Estimate, Picks, improved, needs_of
from firmwright.select.parts import SegmentParts, single_parts
from firmwright.select.programs import Part, Program, frontier, peak_bytes
from firmwright.select.row_loop import Segment
from firmwright.select.segments import RowsOf, Segments

Ordered: TypeAlias = Sequence[tuple[Call, Sequence[Alternative]]]

_ROUNDS = 4
"""Times that the planner corrects the prices of parts."""
_MOVED_PERCENT = 110
"""What a call may cost of its fastest when it changes so that its neighbours fit."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A selected module with what it takes by estimate; `segments` are spans of call indices."""

    module: IRModule
    time: int
    instructions: int
    workspace_bytes: int
    image_bytes: int
    segments: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """A way to compile a model: its workspace, the instructions of a run as predicted.

    `segments` are the spans of operators (first, end) that are computed row by row.
    """

    workspace_bytes: int
    instructions: int
    segments: tuple[tuple[int, int], ...]


def whole(
    module: IRModule, ordered: Ordered, picks: Picks, estimate: Callable[[IRModule], Estimate]
) -> Candidate:
    """Every call as a whole, with those alternatives."""
    built = build(module, ordered, picks)
    taken = _taken(ordered, picks)
    time, instructions, image_bytes = _spent(taken)
    return Candidate(built, time, instructions, estimate(built).workspace_bytes, image_bytes)


def build(
    module: IRModule, ordered: Ordered, picks: Picks, segments: Sequence[Segment] = ()
) -> IRModule:
    """The module with kernels and AOT main."""
    chosen = tuple(
        (call, found[pick] if found else None)
        for (call, found), pick in zip(ordered, picks, strict=True)
    )
    return build_main(module, chosen, segments)


def _taken(
    ordered: Ordered, picks: Picks, segments: Sequence[tuple[int, int]] = ()
) -> list[Alternative]:
    """The alternatives of the calls outside of `segments`."""
    inside = {index for first, end in segments for index in range(first, end)}
    return [
        found[pick]
        for index, ((_, found), pick) in enumerate(zip(ordered, picks, strict=True))
        if found and index not in inside
    ]


def _spent(taken: Sequence[Alternative]) -> tuple[int, int, int]:
    """Predicted time and instructions, and bytes of flash."""
    return (
        sum(item.time for item in taken),
        sum(item.instructions for item in taken),
        sum(item.image_bytes for item in taken),
    )


def width(found: Sequence[Alternative], percent: int) -> int:
    """How many alternatives take at most that much time of the fastest, and all before them."""
    limit = percent * min((item.time for item in found), default=0)
    within = [index for index, item in enumerate(found) if 100 * item.time <= limit]
    return within[-1] + 1 if within else 0


@dataclass(frozen=True)
class Programs:
    """The programs of a module whose calls take at most `percent` of their fastest.

    `ordered` has each call's alternatives by their `price`: time, and what else shall be saved.
    """

    module: IRModule
    ordered: Ordered
    rows_of: RowsOf
    estimate: Callable[[IRModule], Estimate]
    percent: int
    price: Callable[[Alternative], int] = attrgetter("time")

    def candidates(self) -> tuple[Candidate, ...]:
        """The fastest first; none takes more of both than another."""
        widths = [width(found, self.percent) for _, found in self.ordered]
        needs = needs_of(widths, lambda picks: self._ask(picks, ()))
        parts = self._parts(widths, needs)
        for _ in range(_ROUNDS):
            programs = frontier(parts, len(self.ordered))
            estimates = [self._estimate(program) for program in programs]
            more = _underestimated(programs, estimates)
            if not more:
                break
            parts = [replace(p, bytes=more[id(p)]) if id(p) in more else p for p in parts]
        found: list[Candidate] = []
        for program, estimate in zip(programs, estimates, strict=True):
            found += self._variants(program, needs, estimate)
        return _unbeaten(found)

    def _parts(self, widths: Sequence[int], needs: Sequence[Sequence[int]]) -> list[Part]:
        entry = self.module.entry
        assert isinstance(entry, Function)
        offered = [found[:count] for (_, found), count in zip(self.ordered, widths, strict=True)]
        fed = self.module.io.input_rows
        singles = [
            part for part in single_parts(offered, needs, self.price) if part.first or not fed
        ]
        return singles + SegmentParts(self.module, entry, Segments(entry, self.rows_of)).parts()

    def _estimate(self, program: Program) -> Estimate:
        return self._ask(self._picks(program), _segments(program))

    def _picks(self, program: Program) -> Picks:
        picked = {part.first: part.pick for part in program}
        return tuple(picked.get(index, 0) for index in range(len(self.ordered)))

    def _ask(self, picks: Picks, segments: Sequence[Segment]) -> Estimate:
        return self.estimate(build(self.module, self.ordered, picks, segments))

    def _variants(
        self, program: Program, needs: Sequence[Sequence[int]], estimate: Estimate
    ) -> list[Candidate]:
        """The program, and where its plan takes more than its peak, one with calls that agree.

        Calls next to each other may have to write in one direction, which no part's price says.
        """
        segments, picks = _segments(program), self._picks(program)
        found = [self._candidate(program, picks, estimate)]
        if estimate.workspace_bytes > peak_bytes(program):
            allowed = [width(alternatives, _MOVED_PERCENT) for _, alternatives in self.ordered]
            calls = [p.first for p in program if p.segment is None and allowed[p.first] > 1]
            taken = zip(needs, allowed, picks, strict=True)
            narrowed = [mine[: max(count, pick + 1)] for mine, count, pick in taken]
            agreed = improved(
                picks, peak_bytes(program), narrowed, calls, lambda p: self._ask(p, segments)
            )
            found.append(self._candidate(program, agreed, self._ask(agreed, segments)))
        return found

    def _candidate(self, program: Program, picks: Picks, estimate: Estimate) -> Candidate:
        """`program` with `picks` for the calls outside of its segments."""
        by_rows = [part for part in program if part.segment is not None]
        spans = tuple((part.first, part.end) for part in by_rows)
        segments = _segments(program)
        time, instructions, image_bytes = _spent(_taken(self.ordered, picks, spans))
        return Candidate(
            build(self.module, self.ordered, picks, segments),
            time + sum(part.time for part in by_rows),
            instructions + sum(segment.instructions for segment in segments),
            estimate.workspace_bytes,
            image_bytes + sum(pick.image_bytes for s in segments for pick in s.picks),
            spans,
        )


def _segments(program: Program) -> list[Segment]:
    return [part.segment for part in program if part.segment is not None]


def _underestimated(programs: Sequence[Program], estimates: Sequence[Estimate]) -> dict[int, int]:
    """What the parts need whose price is too low, by the parts' ids."""
    more: dict[int, int] = {}
    for program, estimate in zip(programs, estimates, strict=True):
        for part in program:
            calls = range(part.first, part.end)
            needed = max(estimate.call_bytes.get(call, 0) for call in calls)
            if needed > part.bytes:
                more[id(part)] = max(needed, more.get(id(part), 0))
    return more


def _unbeaten(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    kept: list[Candidate] = []
    for item in sorted(found, key=lambda c: (c.time, c.workspace_bytes)):
        if not kept or item.workspace_bytes < kept[-1].workspace_bytes:
            kept.append(item)
    return tuple(kept)
