"""Render a compilation for notebooks: facts, operators, and a map of each pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firmwright.base.html_fragments import Markup, render_properties, render_section, render_table
from firmwright.report.memory_map import make_memory_map, render_svg


def compilation_html(metadata: Mapping[str, Any]) -> str:
    """Render the compilation."""
    target = ", ".join(str(value) for value in metadata["target"].values())
    return render_section(
        f"{metadata['model']} for {metadata['board']}",
        render_properties(
            (
                ("target", target),
                ("roundings", metadata["numerics"]),
                ("inputs", _tensors(metadata["io"]["inputs"])),
                ("outputs", _tensors(metadata["io"]["outputs"])),
                ("workspace", _workspace(metadata)),
                ("constants", f"{metadata['constants_bytes']:,} bytes"),
            )
        ),
        render_table(
            ("operator", "kind", "MACs", "kernel"),
            [
                (row["name"], row["kind"], row["macs"] or None, row["schedule"])
                for row in metadata["operators"]
            ],
        ),
        *(memory_html(metadata, name) for name, use in metadata["pools"].items() if use["bytes"]),
    )


def memory_html(metadata: Mapping[str, Any], pool: str) -> Markup:
    """Render the map of one pool."""
    title = f"{metadata['model']} on {metadata['board']}, pool {pool}"
    return Markup(render_svg(make_memory_map(metadata, pool, title)))


def _workspace(metadata: Mapping[str, Any]) -> str:
    """Format the workspace and its distance from the lower bound."""
    used_bytes, gap = metadata["workspace_bytes"], metadata["optimality_gap_bytes"]
    return f"{used_bytes:,} bytes, " + (
        "the lower bound" if not gap else f"{gap:,} above the bound"
    )


def _tensors(rows: list[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{row['name']}: {row['dtype']} {'x'.join(map(str, row['shape'])) or 'scalar'}"
        for row in rows
    )
