"""Draws a memory plan as SVG, with time to the right and byte offsets upwards.

Each buffer is a rectangle from its first to its last call, with its size as height.
Where two overlap, both show. A buffer with several live ranges has one rectangle for
each:

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
from firmwright.report.map_labels import (
    LETTER,
    LINE_HEIGHT,
    Box,
    MapLabel,
    place_labels,
)
from firmwright.report.page_template import render_report_template
from firmwright.report.pareto_front import nice_step
from firmwright.report.text_shortening import shorten

LEFT, TOP, BOTTOM, RIGHT = 84, 84, 112, 28
"""The margins around the drawing, in pixels like all coordinates."""
TITLE_HEIGHT = 56
"""The part of the upper margin that a title needs."""
HEIGHT = 330
TICKS_MAX = 6
"""The axis of bytes has at most this number of intervals."""
NAME_LETTERS = 22
"""Longer names of tensors have an ellipsis in the middle."""

_KINDS: Final = {
    "activation": ("activation", "#7aa6d8", "#3d6fa8"),
    "input": ("input", "#8cc084", "#4d8a45"),
    "output": ("output", "#e0a458", "#a86a1c"),
    "scratch": ("scratch of one operator", "#b79ad0", "#7d5ba0"),
    "state": ("state", "#d98880", "#a34d44"),
    "ring": ("rows of one tensor", "#79bdb8", "#3c8580"),
    "const": ("constants in RAM", "#b8b39a", "#7b765c"),
}
KIND_LABELS: Final = {kind: label for kind, (label, _, _) in _KINDS.items()}
KIND_COLORS: Final = {kind: (fill, edge) for kind, (_, fill, edge) in _KINDS.items()}
"""The colors of the area and of the edge of a rectangle, in a file of its own."""


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """A pool's buffers and size, the calls by time, and the label of the top line.

    A call is named after its operator, as in "conv2d 2", or "" without one.
    """

    title: str
    buffers: tuple[PlannedBuffer, ...]
    calls: tuple[str, ...]
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

    def box(self, buffer: PlannedBuffer, live: tuple[int, int]) -> Box:
        """Return the rectangle of a live range, a pixel narrower on both sides."""
        first, end = live
        x = self.x(first) + 1
        y = self.y(buffer.end)
        height = max(self.y(buffer.offset) - y, 2.0)
        return Box(x, y, self.x(end) - x - 1, height)


@dataclass(frozen=True, slots=True)
class DrawnBuffer:
    """A live range of a buffer as a rectangle, with its name where there is room."""

    buffer: PlannedBuffer
    box: Box
    label: MapLabel | None


def make_memory_map(summary: CompilationSummary, pool: str, title: str) -> MemoryMap:
    """Return the map of a pool of a compilation.

    The workspace in one pool has a lower bound.
    """
    plan = summary.plan
    assert plan is not None  # compiled to the end
    labels = {op.index: f"{op.kind} {op.index}" for op in summary.operators}
    used_bytes = summary.pools[pool].bytes
    is_workspace = used_bytes == summary.workspace_bytes
    return MemoryMap(
        title,
        tuple(buffer for buffer in plan.buffers if buffer.pool == pool),
        tuple(labels.get(index, "") for index in plan.operator_by_time),
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


def render_svg(
    drawn: MemoryMap, page: MapPage | None = None, *, has_style_sheet: bool = False
) -> str:
    """Return the map for a report's page, by default for its own file.

    `has_style_sheet` is set for another page that defines the colors of text and paper.
    """
    steps = max(len(drawn.calls), 1)
    least_step, width = (30.0, 1030.0) if page else (54.0, 960.0)
    scale = MapScale(
        step_count=steps,
        top_bytes=max(drawn.used_bytes, 1),
        top=TOP if drawn.title else TOP - TITLE_HEIGHT,
        step=max(least_step, width / steps),
    )
    return render_report_template(
        "memory_map.svg.j2",
        map=drawn,
        page=page,
        has_colors=page is not None or has_style_sheet,
        scale=scale,
        drawn=_draw_buffers(drawn, scale),
        ticks=range(0, drawn.used_bytes + 1, nice_step(drawn.used_bytes, TICKS_MAX)),
        labels=KIND_LABELS,
        colors=KIND_COLORS,
        letter=LETTER,
        line_height=LINE_HEIGHT,
    )


def _draw_buffers(drawn: MemoryMap, scale: MapScale) -> list[DrawnBuffer]:
    lives: list[tuple[PlannedBuffer, tuple[int, int]]] = []
    for buffer in drawn.buffers:
        lives += [(buffer, live) for live in buffer.live]
    boxes = [scale.box(buffer, live) for buffer, live in lives]
    names: list[tuple[str, str]] = []
    for buffer, (first, end) in lives:
        calls = filter(None, drawn.calls[first:end])
        names.append((_name(buffer, next(calls, "")), f"{buffer.size_bytes:,}"))
    labels = place_labels(boxes, names, scale.step - 2)
    rectangles: list[DrawnBuffer] = []
    for (buffer, _), box, label in zip(lives, boxes, labels, strict=True):
        rectangles.append(DrawnBuffer(buffer, box, label))
    # Small ones are drawn last, so that the pointer finds each.
    return sorted(rectangles, key=lambda item: -item.box.width * item.box.height)


def _name(buffer: PlannedBuffer, first_call: str) -> str:
    """Return a short name: an activation's is that of the call that writes it."""
    match buffer.kind:
        case "activation" | "ring" if first_call:
            return first_call
        case "scratch":
            return buffer.name.rpartition(".")[2]
        case _:
            return shorten(buffer.name, NAME_LETTERS)


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
