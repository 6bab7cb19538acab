"""Renders a report as one HTML page without network access or frameworks.

Style, script and the report's JSON are embedded; a later report reads the JSON as its
baseline. Without the script, the page has the same contents except for tooltips.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from markupsafe import Markup

from firmwright.base.json_input import Json, JsonObject, as_list
from firmwright.compilation_summary import PlannedBuffer
from firmwright.report.memory_map import (
    KIND_LABELS,
    MapPage,
    MemoryMap,
    format_bound,
    render_svg,
)
from firmwright.report.model import (
    BuildReport,
    PoolUsage,
    occupied_bytes_by_time,
    peak_time,
)
from firmwright.report.network_drawing import NetworkDrawing, draw_network
from firmwright.report.page_template import render_report_template, report_file
from firmwright.report.pareto_front import plot_front

EMBEDDED_JSON: Final = re.compile(
    r'<script type="application/json" id="facts">(.*?)</script>', re.DOTALL
)
"""The element of a page that contains the report's JSON."""
_SCRIPTS: Final = ("page.js", "memory.js", "network.js", "front.js")
"""The files of the page's script, in order."""
_LARGEST = 12
"""Number of operators with a segment of their own in the bar of flash."""
_PEAKS = 5
"""Number of times with the most live bytes that the page lists."""
_SECTION_WORDS: Final = {
    "text": "code",
    "rodata": "constants",
    "data": "initial values",
}


class _Segment(NamedTuple):
    """A segment of a stacked bar, which templates unpack; `style` numbers its color."""

    label: str
    size_bytes: int
    style: int


def render_page(report: BuildReport, earlier: JsonObject | None = None) -> str:
    """Return the page; `earlier` is the JSON of another report to compare with."""
    occupied = occupied_bytes_by_time(report)
    peak = peak_time(report)
    values = {**report.as_json(), "occupied_bytes": occupied}
    network = report.network
    drawing = None if network is None else draw_network(network, report)
    sources = {} if network is None else network.sources
    used_kinds = {buffer.kind for buffer in report.buffers}
    kinds = [item for item in KIND_LABELS.items() if item[0] in used_kinds]
    alive = [buffer for buffer in report.buffers if buffer.lives_at(peak)]
    alive.sort(key=lambda buffer: (-buffer.size_bytes, buffer.name))
    by_bytes = sorted(enumerate(occupied), key=lambda item: (-item[1], item[0]))
    maps: list[tuple[PoolUsage, Markup]] = []
    for pool in report.pools:
        maps.append((pool, Markup(_map(report, pool.name))))
    flash_sizes = [operator.flash_bytes for operator in report.operators]
    return render_report_template(
        "report.html.j2",
        report=report,
        earlier=earlier,
        before=_earlier_counts(earlier),
        maps=maps,
        kinds=kinds,
        peak=peak,
        peak_bytes=occupied[peak] if occupied else 0,
        alive=alive,
        next_peaks=by_bytes[:_PEAKS],
        widest=_widest(report),
        heaviest=max(flash_sizes, default=0) or 1,
        flash=_flash(report),
        largest=_largest(report),
        sections=_sections(report),
        drawing=drawing,
        graph=_render_graph(drawing),
        operators={operator.index: operator for operator in report.operators},
        sources=sources,
        plot=plot_front(report.front) if report.front else None,
        facts=_embed_json(values),
        sources_json=_embed_json(sources),
        script=Markup("".join(map(report_file, _SCRIPTS))),
    )


def _embed_json(values: object) -> Markup:
    text = json.dumps(values, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _render_graph(drawing: NetworkDrawing | None) -> Markup:
    if drawing is None:
        return Markup()
    return Markup(render_report_template("network.svg.j2", drawing=drawing))


def _sections(report: BuildReport) -> list[tuple[str, str]]:
    """Return the identifiers and titles of the page's sections, for its links."""
    sections = {
        "network": report.network is not None,
        "memory": True,
        "programs": bool(report.front),
        "accuracy": report.evaluation is not None,
        "operators": True,
        "targets": bool(report.search),
        "flash": True,
        "stack": True,
    }
    return [(name, name.capitalize()) for name, shown in sections.items() if shown]


def _earlier_counts(earlier: JsonObject | None) -> dict[str, Json]:
    """Return the counts by operator name in another report, which may be malformed."""
    counts: dict[str, Json] = {}
    if earlier is not None:
        for row in as_list(earlier["operators"]):
            if isinstance(row, Mapping):
                counts[str(row.get("name"))] = row.get("count")
    return counts


def _map(report: BuildReport, pool: str) -> str:
    """Return the memory map of a pool as SVG; a single pool has the plan's bound."""
    numbers: dict[str, int] = {}
    shown: list[PlannedBuffer] = []
    for index, buffer in enumerate(report.buffers):
        numbers[buffer.name] = index
        if buffer.pool == pool:
            shown.append(buffer)
    names = tuple(item.name for item in report.pools)
    used_bytes = report.pools[names.index(pool)].used_bytes
    bound = report.lower_bound_bytes if len(report.pools) == 1 else None
    times = range(len(report.operator_by_time))
    memory_map = MemoryMap(
        title="",
        buffers=tuple(shown),
        calls=tuple(map(report.call_at, times)),
        used_bytes=used_bytes,
        bound_label=format_bound(used_bytes, bound),
    )
    return render_svg(memory_map, MapPage(names, numbers))


def _widest(report: BuildReport) -> int:
    """Return the largest count or prediction, to which the operators' bars relate."""
    widest = 0
    for operator in report.operators:
        widest = max(widest, operator.count)
        if report.unit == "instructions":
            widest = max(widest, operator.predicted)
    return widest or 1


def _flash(report: BuildReport) -> list[_Segment]:
    """Return the kinds of sections in flash."""
    sizes = Counter[str]()
    for section in report.sections:
        sizes[section.kind] += section.size_bytes
    segments: list[_Segment] = []
    for style, (kind, words) in enumerate(_SECTION_WORDS.items()):
        if sizes[kind]:
            segments.append(_Segment(words, sizes[kind], style))
    return segments


def _largest(report: BuildReport) -> list[_Segment]:
    """Return the flash of the largest operators, then of the rest of the firmware."""
    operators = sorted(report.operators, key=lambda o: (-o.flash_bytes, o.index))
    segments: list[_Segment] = []
    for operator in operators[:_LARGEST]:
        segments.append(_Segment(operator.label, operator.flash_bytes, 0))
    sizes = [operator.flash_bytes for operator in operators]
    of_others, of_all = sum(sizes[_LARGEST:]), sum(sizes)
    segments += [
        _Segment("other operators", of_others, 0),
        _Segment("calls and glue", report.model_flash_bytes - of_all, 1),
        _Segment(
            "firmware around the model",
            report.flash_bytes - report.model_flash_bytes,
            2,
        ),
    ]
    return [segment for segment in segments if segment.size_bytes > 0]
