"""Renders a report as one HTML page without network access or frameworks.

Style, script and the report's JSON are embedded; a later report reads the JSON as its baseline.
Without the script, the page has the same contents except for tooltips.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from firmwright.compilation_summary import PlannedBuffer
from firmwright.report.memory_map import (
    KIND_LABELS,
    MemoryMap,
    format_bound,
    page_theme,
    render_svg,
)
from firmwright.report.model import BuildReport, OperatorReport, occupied_bytes_by_time, peak_time
from firmwright.report.page_template import render_report_template, report_file

EMBEDDED_JSON: Final = re.compile(
    r'<script type="application/json" id="facts">(.*?)</script>', re.DOTALL
)
"""The element of a page that contains the report's JSON."""
_LARGEST = 12
_SECTION_WORDS: Final = {"text": "code", "rodata": "constants", "data": "initial values"}


@dataclass(frozen=True, slots=True)
class SummaryCard:
    """A key figure of the page; `change` is the difference from the baseline, if any."""

    label: str
    value: int
    unit: str
    note: str
    change: int | None


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """A row of the operator table; shares are percentages of the widest bar or of the total."""

    operator: OperatorReport
    share: float
    bar: float
    predicted_at: float | None
    off: float | None
    per_mac: float | None
    flash_bar: float
    code_bar: float
    change: int | None


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a stacked bar."""

    label: str
    size_bytes: int
    percent: float
    style: int


def render_page(report: BuildReport, earlier: Mapping[str, Any] | None = None) -> str:
    occupied, peak = occupied_bytes_by_time(report), peak_time(report)
    return render_report_template(
        "report.html.j2",
        report=report,
        earlier=earlier,
        cards=list(_cards(report, earlier)),
        maps=[(pool, Markup(_map(report, pool.name))) for pool in report.pools],
        kinds=[(k, w) for k, w in KIND_LABELS.items() if any(b.kind == k for b in report.buffers)],
        peak=peak,
        peak_bytes=occupied[peak] if occupied else 0,
        alive=_alive(report, peak),
        next_peaks=_highest_times(occupied),
        rows=list(_rows(report, earlier)),
        widest=max((operator.count for operator in report.operators), default=0),
        flash=_flash(report),
        largest=_largest(report),
        per_mac=report.total / report.macs if report.macs else None,
        kind_words=KIND_LABELS,
        facts=Markup(_embedded(report)),
        script=Markup(report_file("report.js")),
    )


def _embedded(report: BuildReport) -> str:
    """Return the report's JSON, escaped for a script element."""
    facts = {**report.as_json(), "occupied_bytes": occupied_bytes_by_time(report)}
    return json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")


def _cards(report: BuildReport, earlier: Mapping[str, Any] | None) -> Iterator[SummaryCard]:
    old: Mapping[str, Any] = earlier or {}
    old_stack = old.get("stack")

    def card(label: str, value: int, unit: str, note: str, before: object) -> SummaryCard:
        change = value - before if isinstance(before, int) else None
        return SummaryCard(label, value, unit, note, change)

    workspace, bound, stack = report.workspace_bytes, report.lower_bound_bytes, report.stack
    note = "the lower bound" if workspace == bound else f"lower bound {bound:,}"
    yield card("workspace", workspace, "bytes", note, old.get("workspace_bytes"))
    seen = "" if stack.seen_bytes is None else f", {stack.seen_bytes:,} seen"
    note = f"firmware {stack.firmware_bytes:,}{seen}"
    before = old_stack.get("model_bytes") if isinstance(old_stack, dict) else None
    yield card("stack of the model", stack.model_bytes, "bytes", note, before)
    flash, note = report.model_flash_bytes, f"of {report.flash_bytes:,} in the image"
    yield card("flash of the model", flash, "bytes", note, old.get("model_flash_bytes"))
    note = "no multiply-adds"
    if report.macs:
        note = f"{report.total / report.macs:.2f} per multiply-add"
    yield card("one run", report.total, report.unit, note, old.get("total"))
    if report.parallel is not None:
        before = (old.get("parallel") or {}).get("makespan")
        run = report.parallel
        yield card("one run in parallel", run.makespan, report.unit, str(run), before)


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
    return render_svg(memory_map, page_theme([p.name for p in report.pools], number))


def _alive(report: BuildReport, time: int) -> list[PlannedBuffer]:
    alive = [buffer for buffer in report.buffers if buffer.lives_at(time)]
    return sorted(alive, key=lambda buffer: (-buffer.size_bytes, buffer.name))


def _highest_times(occupied: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the times with the most live bytes, which limit the savings at the peak."""
    order = sorted(enumerate(occupied), key=lambda item: (-item[1], item[0]))
    return order[:5]


def _rows(report: BuildReport, earlier: Mapping[str, Any] | None) -> Iterator[OperatorRow]:
    old = earlier["operators"] if earlier is not None else ()
    before = {row.get("name"): row.get("count") for row in old if isinstance(row, dict)}
    counts = [max(o.count, o.predicted if _same_unit(report) else 0) for o in report.operators]
    widest = max(counts, default=0) or 1
    heaviest = max((operator.flash_bytes for operator in report.operators), default=0) or 1
    for operator in report.operators:
        was = before.get(operator.name)
        has_prediction = bool(operator.predicted) and _same_unit(report)
        yield OperatorRow(
            operator,
            share=100 * operator.count / max(report.total, 1),
            bar=100 * operator.count / widest,
            predicted_at=100 * operator.predicted / widest if has_prediction else None,
            off=100 * (operator.count / operator.predicted - 1) if has_prediction else None,
            per_mac=operator.count / operator.macs if operator.macs else None,
            flash_bar=100 * operator.flash_bytes / heaviest,
            code_bar=100 * operator.code_bytes / heaviest,
            change=operator.count - was if isinstance(was, int) else None,
        )


def _same_unit(report: BuildReport) -> bool:
    return report.unit == "instructions"


def _flash(report: BuildReport) -> list[BarSegment]:
    whole = max(report.flash_bytes, 1)
    bars = []
    for style, (kind, words) in enumerate(_SECTION_WORDS.items()):
        size = sum(section.size_bytes for section in report.sections if section.kind == kind)
        bars.append(BarSegment(words, size, 100 * size / whole, style))
    return [bar for bar in bars if bar.size_bytes]


def _largest(report: BuildReport) -> list[BarSegment]:
    whole = max(report.flash_bytes, 1)
    owned = sorted(report.operators, key=lambda o: (-o.flash_bytes, o.index))
    shared = report.model_flash_bytes - sum(o.flash_bytes for o in owned)
    parts = [(f"{o.kind} {o.index}", o.flash_bytes, 0) for o in owned[:_LARGEST]]
    parts += [
        ("other operators", sum(o.flash_bytes for o in owned[_LARGEST:]), 0),
        ("calls and glue", shared, 1),
        ("firmware around the model", report.flash_bytes - report.model_flash_bytes, 2),
    ]
    return [BarSegment(label, n, 100 * n / whole, style) for label, n, style in parts if n > 0]
