"""`firmwright cache`: show or clear the cache of builds and converted models."""

import argparse
from collections import Counter
from typing import Final

from firmwright.base.cache_folder import cache_root
from firmwright.cli.text_table import Cell, format_pairs
from firmwright.cli.verb import Outcome
from firmwright.flows.board import build_cache

_FOLDERS: Final = ("builds", "objects", "models")


def run(args: argparse.Namespace) -> Outcome:
    removed = build_cache.trim_cache(0, 0) if args.action == "clear" else 0
    entries, limit = build_cache.cache_entries(), build_cache.cache_limit_bytes()
    size = sum(entry.size_bytes for entry in entries)
    root = cache_root()
    folders = Counter(entry.path.relative_to(root).parts[0] for entry in entries)
    rows: list[tuple[str, Cell]] = [
        ("folder", str(root)),
        ("size", f"{size:,} bytes of {limit:,} ({build_cache.SIZE_VARIABLE})"),
        *((name, folders[name]) for name in _FOLDERS),
    ]
    rows += [("removed", f"{removed:,} bytes")] if args.action == "clear" else []
    data = {"folder": str(root), "size_bytes": size, "limit_bytes": limit}
    counts = {name: folders[name] for name in _FOLDERS} | {"removed_bytes": removed}
    return Outcome({**data, **counts}, format_pairs(rows))
