"""`firmwright backends`: what can take parts of a program, and what each takes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, facts, table
from firmwright.cli.targets import facts_of
from firmwright.ir.graph.patterns import show
from firmwright.targets.backend import Backend
from firmwright.targets.backends import BACKENDS

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
        text = table(["backend", "version", "patterns", ""], rows)
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
        **facts_of(backend.kind),
        "merge_regions": backend.merge_regions,
        "pools": list(backend.pools),
        "patterns": [{"name": e.name, "pattern": show(e.pattern)} for e in backend.table],
        "intrinsics": [item.name for item in backend.intrinsics],
    }


def _page(backend: Backend) -> str:
    attrs = [f"-{name}={spec.default}" for name, spec in backend.attrs.items()]
    head = facts(
        [
            ("backend", f"{backend.name} {backend.version}: {backend.kind.doc}"),
            ("attributes", " ".join(attrs) or "none"),
            ("pools", ", ".join(backend.pools) or "none"),
        ]
    )
    rows = [[entry.name, show(entry.pattern)] for entry in backend.table]
    return f"{head}\n\n{table(['pattern', 'covers'], rows)}"
