"""Draws a memory plan as it changes over a run: time to the right, bytes upwards.

    python docs/memory_map.py OUT/metadata.json -o plan.svg [--pool sram] [--title TEXT]

In: the metadata.json that `firmwright compile` writes. Out: one SVG, the same bytes for the same
plan. `firmwright report` has the same map in its page, to look at with the pointer.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "toolchain"))

from firmwright.report.memory_map import make_memory_map, render_svg


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
    args.output.write_text(render_svg(make_memory_map(metadata, pool, title)), encoding="utf-8")


if __name__ == "__main__":
    main()
