# ruff: noqa: INP001 - a script beside the pages that it draws for, in no package
"""Draws a memory plan as it changes over a run: time to the right, bytes upwards.

    python docs/memory_map.py OUT/metadata.json -o plan.svg [--pool sram] [--title TEXT]

In: the metadata.json that `firmwright compile` writes. Out: one SVG, the same bytes for the same
plan. Every buffer is a rectangle: as wide as the operators during which it lives, as high as its
size, at its offset. A buffer with several live ranges is drawn once for each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

COLOURS = {
    "activation": ("#7aa6d8", "activation"),
    "input": ("#8cc084", "input"),
    "output": ("#e0a458", "output"),
    "scratch": ("#b79ad0", "scratch of one operator"),
    "state": ("#d98880", "state"),
}
LEFT, TOP, BOTTOM, RIGHT = 84, 84, 112, 28
HEIGHT = 330
LETTER = 6.1
"""Width of a character of 11 px text, roughly: enough to know what fits."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From operator index and byte offset to the drawing's coordinates."""

    steps: int
    top_bytes: int

    @property
    def step(self) -> float:
        return max(54.0, 800.0 / self.steps)

    @property
    def width(self) -> float:
        return self.step * self.steps

    def x(self, time: int) -> float:
        return LEFT + time * self.step

    def y(self, offset: int) -> float:
        return TOP + HEIGHT * (1 - offset / self.top_bytes)


def draw(metadata: Mapping[str, Any], pool: str, title: str) -> str:
    """The whole SVG."""
    buffers = [b for b in metadata["plan"]["buffers"] if b["pool"] == pool]
    operators = metadata["operators"]
    used = int(metadata["pools"][pool]["bytes"])
    scale = Scale(max(len(operators), 1), used)
    size = (LEFT + scale.width + RIGHT, TOP + HEIGHT + BOTTOM)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]:.0f}" height="{size[1]:.0f}" '
        f'viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" font-family="system-ui, sans-serif" '
        'font-size="11" fill="#24292f">',
        '<rect width="100%" height="100%" rx="6" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="28" font-size="16" font-weight="600">{escape(title)}</text>',
        *_legend({b["kind"] for b in buffers}),
        *_axes(operators, scale, used),
        *(line for buffer in buffers for line in _rectangles(buffer, operators, scale)),
        *_bound(metadata, scale, used),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend(kinds: set[str]) -> Iterator[str]:
    x = float(LEFT)
    for kind, (colour, words) in COLOURS.items():
        if kind in kinds:
            yield f'<rect x="{x:.1f}" y="43" width="11" height="11" fill="{colour}"/>'
            yield f'<text x="{x + 16:.1f}" y="53">{words}</text>'
            x += 34 + LETTER * len(words)


def _axes(operators: list[Mapping[str, Any]], scale: Scale, used: int) -> Iterator[str]:
    base, right = scale.y(0), LEFT + scale.width
    for offset in _ticks(used):
        y = scale.y(offset)
        yield f'<path d="M{LEFT} {y:.1f}H{right:.1f}" stroke="#d8dee4" stroke-width="1"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{offset:,}</text>'
    for number, operator in enumerate(operators):
        x = scale.x(number) + scale.step / 2 + 4
        yield (
            f'<text transform="translate({x:.1f} {base + 14:.1f}) rotate(-38)" '
            f'text-anchor="end">{escape(operator["kind"])}</text>'
        )
    middle = LEFT + scale.width / 2
    yield (
        f'<text x="{middle:.1f}" y="{base + BOTTOM - 12:.1f}" text-anchor="middle" '
        'fill="#57606a">operators in the order they run</text>'
    )
    yield (
        f'<text transform="translate(20 {TOP + HEIGHT / 2:.1f}) rotate(-90)" '
        'text-anchor="middle" fill="#57606a">byte of the pool</text>'
    )


def _ticks(used: int) -> range:
    step = next(10**power * n for power in range(9) for n in (1, 2, 5) if used <= 6 * 10**power * n)
    return range(0, used + 1, step)


def _rectangles(
    buffer: Mapping[str, Any], operators: list[Mapping[str, Any]], scale: Scale
) -> Iterator[str]:
    low, size = int(buffer["offset"]), int(buffer["size_bytes"])
    colour = COLOURS[buffer["kind"]][0]
    for first, end in buffer["live"]:
        x, y = scale.x(first) + 1, scale.y(low + size)
        width, height = scale.x(end) - scale.x(first) - 2, max(scale.y(low) - y, 2.0)
        label = f"{size:,} bytes"
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
            f'fill="{colour}" stroke="#ffffff" stroke-width="0.75">'
            f"<title>{escape(buffer['name'])}: {label} at {low:,}</title></rect>"
        )
        if height >= 15 and width >= LETTER * len(label):
            at = f'x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}"'
            yield f'<text {at} text-anchor="middle">{label}</text>'


def _bound(metadata: Mapping[str, Any], scale: Scale, used: int) -> Iterator[str]:
    """A line at the top of the pool; with one pool it is the workspace, which has a bound."""
    words = f"{used:,} bytes"
    if used == metadata["workspace_bytes"]:
        bound = int(metadata["lower_bound_bytes"])
        told = "= lower bound" if used == bound else f"(lower bound {bound:,})"
        words = f"workspace {words} {told}"
    y, right = scale.y(used), LEFT + scale.width
    yield (
        f'<path d="M{LEFT} {y:.1f}H{right:.1f}" stroke="#cf222e" stroke-width="1.5" '
        'stroke-dasharray="6 4"/>'
    )
    yield f'<text x="{right:.1f}" y="{y - 7:.1f}" text-anchor="end" fill="#cf222e">{words}</text>'


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Draws the memory plan of a compiled model.")
    parser.add_argument("metadata", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--pool", default="")
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    metadata = json.loads(args.metadata.read_text(encoding="utf-8"))
    pool = args.pool or next(name for name, facts in metadata["pools"].items() if facts["bytes"])
    title = args.title or f"{metadata['model']} on {metadata['board']}, pool {pool}"
    args.output.write_text(draw(metadata, pool, title), encoding="utf-8")


if __name__ == "__main__":
    main()
