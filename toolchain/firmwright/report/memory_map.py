"""Draws a memory plan as SVG, with time to the right and byte offsets upwards.

Each buffer is a rectangle from its first to its last call, with its size as height. A
buffer with several live ranges has one rectangle for each:

    offset ^  ┌──────┐ ┌──┐
           │  │ A    │ │ C│
           │  └──┬───┴─┴──┤
           │     │ B      │
           └─────┴────────┴──> call
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from firmwright.base.html_fragments import render_notebook_item
from firmwright.compilation_summary import CompilationSummary, PlannedBuffer
from firmwright.report.page_template import render_report_template

LEFT, TOP, BOTTOM, RIGHT = 84, 84, 112, 28
"""The margins around the drawing, in pixels like all coordinates."""
TITLE_HEIGHT = 56
"""The part of the upper margin that a title needs."""
HEIGHT = 330
TICKS_MAX = 6
"""The axis of bytes has at most this number of intervals."""
LETTER = 6.1
"""The approximate width of a character of 11 px text."""

_KINDS: Final = {
    "activation": ("activation", "#7aa6d8"),
    "input": ("input", "#8cc084"),
    "output": ("output", "#e0a458"),
    "scratch": ("scratch of one operator", "#b79ad0"),
    "state": ("state", "#d98880"),
    "ring": ("rows of one tensor", "#79bdb8"),
    "const": ("constants in RAM", "#b8b39a"),
}
KIND_LABELS: Final = {kind: label for kind, (label, _) in _KINDS.items()}
KIND_COLORS: Final = {kind: color for kind, (_, color) in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """A pool's buffers and size, the operator kinds by time, the top line's label."""

    title: str
    buffers: tuple[PlannedBuffer, ...]
    kinds: tuple[str, ...]
    used_bytes: int
    bound_label: str


@dataclass(frozen=True, slots=True)
class MapPage:
    """The page of a map: all pools, and the numbers of buffers.

    The colors of pools differ if there are several. The page's script maps pointer
    positions to times and buffers.
    """

    pools: tuple[str, ...]
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MapScale:
    """The mapping from times and byte offsets to coordinates.

    The axis of time has `step_count` steps of the width `step`; `top_bytes` is the
    offset at the coordinate `top`, as y coordinates increase downwards.
    """

    step_count: int
    top_bytes: int
    top: int
    step: float

    @property
    def width(self) -> float:
        return self.step * self.step_count

    @property
    def size(self) -> tuple[float, float]:
        return LEFT + self.width + RIGHT, self.top + HEIGHT + BOTTOM

    def x(self, time: int) -> float:
        return LEFT + time * self.step

    def y(self, offset: int) -> float:
        return self.top + HEIGHT * (1 - offset / self.top_bytes)

    def box(self, buffer: PlannedBuffer, live: tuple[int, int]) -> dict[str, float]:
        """Return the rectangle of a live range, a pixel narrower on both sides."""
        first, end = live
        x = self.x(first) + 1
        y = self.y(buffer.end)
        height = max(self.y(buffer.offset) - y, 2.0)
        return {"x": x, "y": y, "width": self.x(end) - x - 1, "height": height}


def make_memory_map(summary: CompilationSummary, pool: str, title: str) -> MemoryMap:
    """Return the map of a pool of a compilation.

    The workspace in one pool has a lower bound.
    """
    plan = summary.plan
    assert plan is not None  # compiled to the end
    kinds = {operator.index: operator.kind for operator in summary.operators}
    used_bytes = summary.pools[pool].bytes
    is_workspace = used_bytes == summary.workspace_bytes
    return MemoryMap(
        title,
        tuple(buffer for buffer in plan.buffers if buffer.pool == pool),
        tuple(kinds.get(index, "") for index in plan.operator_by_time),
        used_bytes,
        format_bound(used_bytes, summary.lower_bound_bytes if is_workspace else None),
    )


def format_bound(used_bytes: int, bound: int | None) -> str:
    """Format the size of a pool; only the workspace in one pool has a lower bound."""
    label = f"{used_bytes:,} bytes"
    if bound is None:
        return label
    relation = "= lower bound" if used_bytes == bound else f"(lower bound {bound:,})"
    return f"workspace {label} {relation}"


def render_svg(drawn: MemoryMap, page: MapPage | None = None) -> str:
    """Return the map for a page with its style sheet, by default for its own file."""
    steps = max(len(drawn.kinds), 1)
    least_step, width = (30.0, 1044.0) if page else (54.0, 800.0)
    scale = MapScale(
        step_count=steps,
        top_bytes=max(drawn.used_bytes, 1),
        top=TOP if drawn.title else TOP - TITLE_HEIGHT,
        step=max(least_step, width / steps),
    )
    boxes: list[tuple[PlannedBuffer, dict[str, float]]] = []
    for buffer in drawn.buffers:
        for live in buffer.live:
            boxes.append((buffer, scale.box(buffer, live)))
    return render_report_template(
        "memory_map.svg.j2",
        map=drawn,
        page=page,
        scale=scale,
        boxes=boxes,
        ticks=range(0, drawn.used_bytes + 1, _tick_bytes(drawn.used_bytes)),
        labels=KIND_LABELS,
        colors=KIND_COLORS,
        letter=LETTER,
    )


def _tick_bytes(used_bytes: int) -> int:
    """Return the first distance of ticks of 1, 2, 5, 10, ... that is large enough."""
    unit = 1
    while True:
        for digit in (1, 2, 5):
            if used_bytes <= TICKS_MAX * digit * unit:
                return digit * unit
        unit *= 10


def compilation_html(summary: CompilationSummary) -> str:
    """Render a compilation for notebooks: summary, operators, a map of each pool."""
    maps: list[Markup] = []
    for name, pool in summary.pools.items():
        if pool.bytes:
            title = f"{summary.model} on {summary.board}, pool {name}"
            maps.append(Markup(render_svg(make_memory_map(summary, name, title))))
    rows: list[tuple[str, str, int | None, str]] = []
    for op in summary.operators:
        rows.append((op.label, op.kind, op.macs or None, op.schedule))
    return render_notebook_item(
        "firmwright.report",
        "compilation.html.j2",
        summary=summary,
        rows=rows,
        maps=maps,
    )
