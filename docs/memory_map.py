"""Draw the memory plan of a model over a run: time to the right, bytes upwards.

    python docs/memory_map.py MODEL -o plan.svg [--board B] [--optimize balanced]
        [--pool sram] [--title TEXT]

The output is deterministic. The page of `firmwright report` has the same map with
tooltips.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "toolchain"))

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.report.memory_map import make_memory_map, render_svg


def main() -> None:
    """Parse the arguments and write the SVG."""
    parser = argparse.ArgumentParser(description="Draw the memory plan of a model.")
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--optimize", default="balanced")
    parser.add_argument("--pool", default="")
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    drawn = draw(args.model, args.board, args.optimize, args.pool, args.title)
    args.output.write_text(drawn, encoding="utf-8")


def draw(
    model: Path,
    board: str = "mps2-an386",
    optimize: str = "balanced",
    pool: str = "",
    title: str = "",
) -> str:
    """Return the SVG; the default pool is the first that the plan fills."""
    summary = compile_for(load_model(model), board, optimize=optimize).summary
    if not pool:
        pool = next(name for name, item in summary.pools.items() if item.bytes)
    title = title or f"{summary.model} on {summary.board}, pool {pool}"
    return render_svg(make_memory_map(summary, pool, title))


if __name__ == "__main__":
    main()
