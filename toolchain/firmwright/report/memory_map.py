"""Draws a memory plan as SVG, with time to the right and byte offsets upwards.

Each buffer is a rectangle from its first to its last call, with its size as height. A buffer with
several live ranges has one rectangle for each. The output is deterministic.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from firmwright.compilation_summary import CompilationSummary, PlannedBuffer

LEFT, TOP, BOTTOM, RIGHT = 84, 84, 112, 28
HEIGHT = 330
LETTER = 6.1
"""The approximate width of a character of 11 px text."""

KIND_LABELS: Final[Mapping[str, str]] = {
    "activation": "activation",
    "input": "input",
    "output": "output",
    "scratch": "scratch of one operator",
    "state": "state",
    "ring": "rows of one tensor",
    "const": "constants in RAM",
}
KIND_COLORS: Final[Mapping[str, str]] = {
    "activation": "#7aa6d8",
    "input": "#8cc084",
    "output": "#e0a458",
    "scratch": "#b79ad0",
    "state": "#d98880",
    "ring": "#79bdb8",
    "const": "#b8b39a",
}


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The contents of a map: a pool's buffers and size, and the operator kind at each time.

    `bound_label` is the text at the line on top.
    """

    title: str
    buffers: tuple[PlannedBuffer, ...]
    kinds: tuple[str, ...]
    used_bytes: int
    bound_label: str


def _kind_color(buffer: PlannedBuffer) -> str:
    return KIND_COLORS[buffer.kind]


def _no_marks(buffer: PlannedBuffer) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class MapTheme:
    """The style of a map, by default for separate files.

    `fill` and `marks` return a rectangle's color and extra attributes. `unit` follows a size. With
    `columns`, the script can map pointer positions to times, and sizes are on top of all
    rectangles.
    """

    ink: str = "#24292f"
    muted: str = "#57606a"
    grid: str = "#d8dee4"
    edge: str = "#ffffff"
    line: str = "#cf222e"
    paper: str = "#ffffff"
    fill: Callable[[PlannedBuffer], str] = _kind_color
    marks: Callable[[PlannedBuffer], str] = _no_marks
    tooltips: bool = True
    unit: str = " bytes"
    step_min: float = 54.0
    width_min: float = 800.0
    columns: bool = False


PRINT_THEME: Final = MapTheme()
"""The theme for separate files: fixed colors by kind of buffer."""


@dataclass(frozen=True, slots=True)
class MapScale:
    """The mapping from times and byte offsets to coordinates."""

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


def make_memory_map(summary: CompilationSummary, pool: str, title: str) -> MemoryMap:
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
    """Format the size of a pool; a single pool is the workspace, which has a lower bound."""
    label = f"{used_bytes:,} bytes"
    if bound is None:
        return label
    relation = "= lower bound" if used_bytes == bound else f"(lower bound {bound:,})"
    return f"workspace {label} {relation}"


def render_svg(drawn: MemoryMap, theme: MapTheme = PRINT_THEME) -> str:
    top = TOP if drawn.title else TOP - 56
    steps = max(len(drawn.kinds), 1)
    step = max(theme.step_min, theme.width_min / steps)
    scale = MapScale(steps, max(drawn.used_bytes, 1), top, step)
    width, height = (f"{length:.0f}" for length in scale.size)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
        f'font-size="11" fill="{theme.ink}">',
        *_heading(drawn, theme),
        *_axes(drawn, scale, theme),
        *(_column(time, scale) for time in range(len(drawn.kinds) if theme.columns else 0)),
        *_buffers(drawn, scale, theme),
        *_bound(drawn, scale, theme),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _heading(drawn: MemoryMap, theme: MapTheme) -> Iterator[str]:
    if not drawn.title:
        return
    yield f'<rect width="100%" height="100%" rx="6" fill="{theme.paper}"/>'
    title = escape(drawn.title)
    yield f'<text x="{LEFT}" y="28" font-size="16" font-weight="600">{title}</text>'
    yield from _legend({buffer.kind for buffer in drawn.buffers})


def _legend(kinds: set[str]) -> Iterator[str]:
    x = float(LEFT)
    for kind, words in KIND_LABELS.items():
        if kind in kinds:
            color = KIND_COLORS[kind]
            yield f'<rect x="{x:.1f}" y="43" width="11" height="11" fill="{color}"/>'
            yield f'<text x="{x + 16:.1f}" y="53">{words}</text>'
            x += 34 + LETTER * len(words)


def _axes(drawn: MemoryMap, scale: MapScale, theme: MapTheme) -> Iterator[str]:
    base, right = scale.y(0), LEFT + scale.width
    for offset in _ticks(drawn.used_bytes):
        y = scale.y(offset)
        yield f'<path d="M{LEFT} {y:.1f}H{right:.1f}" stroke="{theme.grid}" stroke-width="1"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{offset:,}</text>'
    for time, kind in enumerate(drawn.kinds):
        x = scale.x(time) + scale.step / 2 + 4
        turned = f"translate({x:.1f} {base + 14:.1f}) rotate(-38)"
        yield f'<text transform="{turned}" text-anchor="end">{escape(kind)}</text>'
    style = f'text-anchor="middle" fill="{theme.muted}"'
    at = f'x="{LEFT + scale.width / 2:.1f}" y="{base + BOTTOM - 12:.1f}"'
    yield f"<text {at} {style}>operators in the order they run</text>"
    turned = f"translate(20 {scale.top + HEIGHT / 2:.1f}) rotate(-90)"
    yield f'<text transform="{turned}" {style}>byte of the pool</text>'


def _ticks(used: int) -> range:
    step = next(10**power * n for power in range(9) for n in (1, 2, 5) if used <= 6 * 10**power * n)
    return range(0, used + 1, step)


def _column(time: int, scale: MapScale) -> str:
    return (
        f'<rect class="column" data-time="{time}" x="{scale.x(time):.1f}" y="{scale.top}" '
        f'width="{scale.step:.1f}" height="{HEIGHT}"/>'
    )


def _buffers(drawn: MemoryMap, scale: MapScale, theme: MapTheme) -> Iterator[str]:
    pairs = [
        (_rectangle(buffer, live, scale, theme), _label(buffer, live, scale, theme))
        for buffer in drawn.buffers
        for live in buffer.live
    ]
    if theme.columns:
        yield from (rectangle for rectangle, _ in pairs)
        yield from (label for _, label in pairs if label)
    else:
        yield from (line for pair in pairs for line in pair if line)


def _box(
    buffer: PlannedBuffer, live: tuple[int, int], scale: MapScale
) -> tuple[float, float, float, float]:
    x, y = scale.x(live[0]) + 1, scale.y(buffer.end)
    return x, y, scale.x(live[1]) - scale.x(live[0]) - 2, max(scale.y(buffer.offset) - y, 2.0)


def _rectangle(
    buffer: PlannedBuffer, live: tuple[int, int], scale: MapScale, theme: MapTheme
) -> str:
    x, y, width, height = _box(buffer, live, scale)
    tooltip = f"{buffer.name}: {buffer.size_bytes:,} bytes at {buffer.offset:,}"
    inside = f"<title>{escape(tooltip)}</title>" if theme.tooltips else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
        f'fill="{theme.fill(buffer)}" stroke="{theme.edge}" stroke-width="0.75"'
        f"{theme.marks(buffer)}>{inside}</rect>"
    )


def _label(buffer: PlannedBuffer, live: tuple[int, int], scale: MapScale, theme: MapTheme) -> str:
    x, y, width, height = _box(buffer, live, scale)
    label = f"{buffer.size_bytes:,}{theme.unit}"
    if height < 15 or width < LETTER * len(label):
        return ""
    at = f'x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}"'
    return f'<text {at} text-anchor="middle">{label}</text>'


def _bound(drawn: MemoryMap, scale: MapScale, theme: MapTheme) -> Iterator[str]:
    y, right = scale.y(drawn.used_bytes), LEFT + scale.width
    path = f'<path d="M{LEFT} {y:.1f}H{right:.1f}" stroke="{theme.line}"'
    yield f'{path} stroke-width="1.5" stroke-dasharray="6 4"/>'
    at = f'x="{right:.1f}" y="{y - 7:.1f}" text-anchor="end"'
    yield f'<text {at} fill="{theme.line}">{drawn.bound_label}</text>'


def page_theme(pools: Sequence[str], number: Mapping[str, int]) -> MapTheme:
    """Return the theme for a page, which marks each rectangle with its buffer's number.

    With several pools, colors distinguish pools; with one, they distinguish kinds of buffers.
    """

    def fill(buffer: PlannedBuffer) -> str:
        several = len(pools) > 1
        return f"var(--pool-{pools.index(buffer.pool) % 4})" if several else "var(--kind)"

    def marks(buffer: PlannedBuffer) -> str:
        label = f"{buffer.name}, {buffer.kind}, {buffer.size_bytes:,} bytes"
        return (
            f' class="buffer kind-{buffer.kind}" data-buffer="{number[buffer.name]}" '
            f'tabindex="0" role="img" aria-label="{escape(label)}"'
        )

    return MapTheme(
        ink="var(--ink)",
        muted="var(--muted)",
        grid="var(--grid)",
        edge="var(--card)",
        line="var(--bad)",
        paper="var(--card)",
        fill=fill,
        marks=marks,
        tooltips=False,
        unit="",
        step_min=30.0,
        width_min=1044.0,
        columns=True,
    )
