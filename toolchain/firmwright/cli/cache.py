"""`firmwright cache`: show or clear the cache of builds."""

import argparse

from firmwright.base.cache_folder import cache_root
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.board import build_cache


def run(args: argparse.Namespace) -> Outcome:
    removed = build_cache.trim_cache(0, 0) if args.action == "clear" else 0
    entries, limit = build_cache.cache_entries(), build_cache.cache_limit_bytes()
    size = sum(entry.size_bytes for entry in entries)
    builds = sum(entry.path.parent.name == "builds" for entry in entries)
    rows: list[tuple[str, Cell]] = [
        ("folder", str(cache_root())),
        ("size", f"{size:,} bytes of {limit:,} ({build_cache.SIZE_VARIABLE})"),
        ("builds", builds),
        ("objects", len(entries) - builds),
    ]
    rows += [("removed", f"{removed:,} bytes")] if args.action == "clear" else []
    data = {"folder": str(cache_root()), "size_bytes": size, "limit_bytes": limit}
    counts = {
        "builds": builds,
        "objects": len(entries) - builds,
        "removed_bytes": removed,
    }
    return Outcome({**data, **counts}, format_pairs(rows))
