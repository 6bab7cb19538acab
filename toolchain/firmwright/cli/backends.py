"""`firmwright backends`: list the installed backends, or the patterns of one."""

import argparse
from collections.abc import Sequence

from firmwright.base.errors import UsageError
from firmwright.cli.targets import target_to_json
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.ir.graph.patterns import format_pattern
from firmwright.targets.backend import Backend
from firmwright.targets.backend_registry import BACKENDS


def run(args: argparse.Namespace) -> Outcome:
    backends = BACKENDS.all()
    if args.backend is None:
        rows: list[Sequence[Cell]] = []
        for name, item in backends.items():
            rows.append([name, item.version, len(item.table), item.kind.doc])
        text = format_table(["backend", "version", "patterns", ""], rows)
        data = {"backends": [_backend_to_json(item) for item in backends.values()]}
        return Outcome(data, text if rows else "no backend is installed")
    if args.backend not in backends:
        listed = ", ".join(backends) or "none is installed"
        raise UsageError(
            f"there is no backend {args.backend!r}.", hint=f"use one of: {listed}."
        )
    backend = backends[args.backend]
    return Outcome(_backend_to_json(backend), _format_backend(backend))


def _backend_to_json(backend: Backend) -> dict[str, object]:
    patterns: list[dict[str, str]] = []
    for entry in backend.table:
        pattern = format_pattern(entry.pattern)
        patterns.append({"name": entry.name, "pattern": pattern})
    return {
        "name": backend.name,
        "version": backend.version,
        "merge_regions": backend.merge_regions,
        "device": backend.device,
        "pools": backend.pools,
        "visible_pools": backend.visible_pools,
        **target_to_json(backend.kind),
        "patterns": patterns,
        "intrinsics": [item.name for item in backend.intrinsics],
    }


def _format_backend(backend: Backend) -> str:
    attrs: list[str] = []
    for name, spec in backend.attrs.items():
        attrs.append(f"-{name}={spec.default}")
    pairs = [
        ("backend", f"{backend.name} {backend.version}: {backend.kind.doc}"),
        ("attributes", " ".join(attrs) or "none"),
        ("device", backend.device or "none, calls run on the core"),
        ("pools", ", ".join(backend.pools) or "none"),
        ("visible pools", ", ".join(backend.visible_pools) or "all"),
    ]
    rows: list[Sequence[Cell]] = []
    for entry in backend.table:
        rows.append([entry.name, format_pattern(entry.pattern)])
    return f"{format_pairs(pairs)}\n\n{format_table(['pattern', 'covers'], rows)}"
