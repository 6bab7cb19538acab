"""Renders a compilation for notebooks: summary, operators, and a map of each pool."""

from markupsafe import Markup

from firmwright.base.html_fragments import render_properties, render_section, render_table
from firmwright.compilation_summary import CompilationSummary, TensorSummary
from firmwright.report.memory_map import make_memory_map, render_svg


def compilation_html(summary: CompilationSummary) -> str:
    return render_section(
        f"{summary.model} for {summary.board}",
        render_properties(
            (
                ("target", ", ".join(summary.target.values())),
                ("numerics", summary.numerics),
                ("inputs", _format_tensors(summary.io.inputs)),
                ("outputs", _format_tensors(summary.io.outputs)),
                ("workspace", _format_workspace(summary)),
                ("constants", f"{summary.constants_bytes:,} bytes"),
            )
        ),
        render_table(
            ("operator", "kind", "MACs", "kernel"),
            [(op.name, op.kind, op.macs or None, op.schedule) for op in summary.operators],
        ),
        *(memory_html(summary, name) for name, pool in summary.pools.items() if pool.bytes),
    )


def memory_html(summary: CompilationSummary, pool: str) -> Markup:
    title = f"{summary.model} on {summary.board}, pool {pool}"
    return Markup(render_svg(make_memory_map(summary, pool, title)))


def _format_workspace(summary: CompilationSummary) -> str:
    gap = summary.optimality_gap_bytes
    distance = f"{gap:,} above the lower bound" if gap else "the lower bound"
    return f"{summary.workspace_bytes:,} bytes, {distance}"


def _format_tensors(tensors: tuple[TensorSummary, ...]) -> str:
    return "; ".join(
        f"{tensor.name}: {tensor.dtype} {'x'.join(map(str, tensor.shape)) or 'scalar'}"
        for tensor in tensors
    )
