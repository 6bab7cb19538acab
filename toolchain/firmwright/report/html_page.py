"""Renders a report as one HTML page without network access or frameworks.

Style, script and the report's JSON are embedded; a later report reads the JSON as its baseline.
Without the script, the page has the same contents except for tooltips.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from firmwright.report.memory_map import KIND_LABELS, MapPage, MemoryMap, format_bound, render_svg
from firmwright.report.model import BuildReport, occupied_bytes_by_time, peak_time
from firmwright.report.page_template import render_report_template, report_file

EMBEDDED_JSON: Final = re.compile(
    r'<script type="application/json" id="facts">(.*?)</script>', re.DOTALL
)
"""The element of a page that contains the report's JSON."""
_LARGEST = 12
_SECTION_WORDS: Final = {"text": "code", "rodata": "constants", "data": "initial values"}


_Segments = list[tuple[str, int, int]]
"""The label, size in bytes and style of each segment of a stacked bar."""


def render_page(report: BuildReport, earlier: Mapping[str, Any] | None = None) -> str:
    occupied, peak = occupied_bytes_by_time(report), peak_time(report)
    facts = json.dumps({**report.as_json(), "occupied_bytes": occupied}, separators=(",", ":"))
    rows = earlier["operators"] if earlier is not None else ()
    return render_report_template(
        "report.html.j2",
        report=report,
        earlier=earlier,
        before={row.get("name"): row.get("count") for row in rows if isinstance(row, dict)},
        maps=[(pool, Markup(_map(report, pool.name))) for pool in report.pools],
        kinds=[(k, w) for k, w in KIND_LABELS.items() if any(b.kind == k for b in report.buffers)],
        peak=peak,
        peak_bytes=occupied[peak] if occupied else 0,
        alive=sorted(
            (buffer for buffer in report.buffers if buffer.lives_at(peak)),
            key=lambda buffer: (-buffer.size_bytes, buffer.name),
        ),
        next_peaks=sorted(enumerate(occupied), key=lambda item: (-item[1], item[0]))[:5],
        widest=_widest(report),
        heaviest=max((o.flash_bytes for o in report.operators), default=0) or 1,
        flash=_flash(report),
        largest=_largest(report),
        kind_words=KIND_LABELS,
        facts=Markup(facts.replace("<", "\\u003c")),
        script=Markup(report_file("report.js")),
    )


def _map(report: BuildReport, pool: str) -> str:
    number = {buffer.name: index for index, buffer in enumerate(report.buffers)}
    used_bytes = next(p.used_bytes for p in report.pools if p.name == pool)
    bound = report.lower_bound_bytes if len(report.pools) == 1 else None
    memory_map = MemoryMap(
        title="",
        buffers=tuple(buffer for buffer in report.buffers if buffer.pool == pool),
        kinds=tuple(report.kind_at(time) for time in range(len(report.operator_by_time))),
        used_bytes=used_bytes,
        bound_label=format_bound(used_bytes, bound),
    )
    return render_svg(memory_map, MapPage(tuple(p.name for p in report.pools), number))


def _widest(report: BuildReport) -> int:
    counts = [operator.count for operator in report.operators]
    if report.unit == "instructions":
        counts += [operator.predicted for operator in report.operators]
    return max(counts, default=0) or 1


def _flash(report: BuildReport) -> _Segments:
    sizes = Counter[str]()
    for section in report.sections:
        sizes[section.kind] += section.size_bytes
    kinds = enumerate(_SECTION_WORDS.items())
    return [(words, sizes[kind], style) for style, (kind, words) in kinds if sizes[kind]]


def _largest(report: BuildReport) -> _Segments:
    owned = sorted(report.operators, key=lambda o: (-o.flash_bytes, o.index))
    parts = [(f"{o.kind} {o.index}", o.flash_bytes, 0) for o in owned[:_LARGEST]]
    parts += [
        ("other operators", sum(o.flash_bytes for o in owned[_LARGEST:]), 0),
        ("calls and glue", report.model_flash_bytes - sum(o.flash_bytes for o in owned), 1),
        ("firmware around the model", report.flash_bytes - report.model_flash_bytes, 2),
    ]
    return [part for part in parts if part[1] > 0]
