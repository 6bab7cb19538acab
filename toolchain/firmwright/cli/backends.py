"""`firmwright backends`: what can take parts of a program, and what each takes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.shared_options import Outcome
from firmwright.cli.targets import target_to_json
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.ir.graph.patterns import format_pattern
from firmwright.targets.backend import Backend
from firmwright.targets.backend_registry import BACKENDS

NAME = "backends"
HELP = "list the backends, or what one of them takes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", metavar="NAME", nargs="?", help="the whole table of this one")


def run(args: argparse.Namespace) -> Outcome:
    known = BACKENDS.all()
    if args.backend is None:
        rows: list[Sequence[Cell]] = [
            [name, item.version, len(item.table), item.kind.doc] for name, item in known.items()
        ]
        text = format_table(["backend", "version", "patterns", ""], rows)
        found = {"backends": [_facts(item) for item in known.values()]}
        return Outcome(found, text if rows else "no backend is installed")
    if args.backend not in known:
        listed = ", ".join(known) or "none is installed"
        raise UsageError(f"there is no backend {args.backend!r}.", hint=f"one of: {listed}.")
    return Outcome(_facts(known[args.backend]), _page(known[args.backend]))


def _facts(backend: Backend) -> dict[str, Any]:
    return {
        "name": backend.name,
        "version": backend.version,
        **target_to_json(backend.kind),
        "merge_regions": backend.merge_regions,
        "pools": list(backend.pools),
        "patterns": [{"name": e.name, "pattern": format_pattern(e.pattern)} for e in backend.table],
        "intrinsics": [item.name for item in backend.intrinsics],
    }


def _page(backend: Backend) -> str:
    attrs = [f"-{name}={spec.default}" for name, spec in backend.attrs.items()]
    head = format_pairs(
        [
            ("backend", f"{backend.name} {backend.version}: {backend.kind.doc}"),
            ("attributes", " ".join(attrs) or "none"),
            ("pools", ", ".join(backend.pools) or "none"),
        ]
    )
    rows = [[entry.name, format_pattern(entry.pattern)] for entry in backend.table]
    return f"{head}\n\n{format_table(['pattern', 'covers'], rows)}"
