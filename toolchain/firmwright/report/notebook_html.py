"""Renders a compilation for notebooks: summary, operators, and a map of each pool."""

from markupsafe import Markup

from firmwright.base.html_fragments import render_notebook_item
from firmwright.compilation_summary import CompilationSummary
from firmwright.report.memory_map import make_memory_map, render_svg


def compilation_html(summary: CompilationSummary) -> str:
    titles = {
        name: f"{summary.model} on {summary.board}, pool {name}"
        for name, pool in summary.pools.items()
        if pool.bytes
    }
    maps = [Markup(render_svg(make_memory_map(summary, *item))) for item in titles.items()]
    rows = [(op.name, op.kind, op.macs or None, op.schedule) for op in summary.operators]
    return render_notebook_item(
        "firmwright.report", "compilation.html.j2", summary=summary, rows=rows, maps=maps
    )
