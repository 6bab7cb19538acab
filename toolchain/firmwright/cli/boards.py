"""`firmwright boards`: the boards there are."""

from __future__ import annotations

import argparse
from pathlib import Path

from firmwright.boards import list_boards
from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, table

NAME = "boards"
HELP = "list the boards"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--boards-dir", metavar="DIR", action="append", default=[], help="more")


def run(args: argparse.Namespace) -> Outcome:
    boards = list_boards([Path(directory) for directory in args.boards_dir])
    data = [
        {
            "name": board.name,
            "core": board.core,
            "evidence": board.evidence,
            "flash_bytes": board.flash_bytes,
            "ram_bytes": board.ram_bytes,
            "description": board.description,
            "run": board.run.kind,
        }
        for board in boards
    ]
    rows: list[list[Cell]] = [
        [b.name, b.core, b.evidence, b.flash_bytes, b.ram_bytes, b.description] for b in boards
    ]
    head = ["board", "core", "evidence", "flash bytes", "RAM bytes", ""]
    return Outcome({"boards": data}, table(head, rows))
