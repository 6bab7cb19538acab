"""`firmwright boards`: the boards there are; a new one from another; a file held to rules."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from firmwright.base.errors import UsageError
from firmwright.boards import Board, list_boards, load_board
from firmwright.boards.scaffold import BOARD_FILE, create_board
from firmwright.cli.shared_options import Outcome
from firmwright.cli.text_table import Cell, format_pairs, format_table

NAME = "boards"
HELP = "list the boards, make a new one from another, or check a board's file"
EVIDENCE = {"hardware": "run on hardware", "emulated": "emulated", "built": "only built"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "new", "check"), default="list")
    parser.add_argument(
        "what", nargs="?", metavar="NAME|FILE", help="of new a name, of check a file"
    )
    parser.add_argument("--from", dest="like", metavar="B", help="the board that a new one is like")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="boards", help="the new board's place (./boards)"
    )
    parser.add_argument("--boards-dir", metavar="DIR", action="append", default=[], help="more")


def run(args: argparse.Namespace) -> Outcome:
    folders = [Path(directory) for directory in args.boards_dir]
    if (args.what is None) != (args.action == "list"):
        raise UsageError(
            f"boards {args.action} takes {'no name' if args.what else 'a name'}.",
            hint="boards; boards new NAME --from B; boards check FILE.",
        )
    match args.action:
        case "new":
            return _new(args, folders)
        case "check":
            return _check(Path(args.what), folders)
        case _:
            return _list(folders)


def _list(folders: list[Path]) -> Outcome:
    boards = list_boards(folders)
    rows: list[list[Cell]] = [
        [b.name, b.core, EVIDENCE[b.validation], b.flash_bytes, b.ram_bytes, b.description]
        for b in boards
    ]
    head = ["board", "core", "validation", "flash bytes", "RAM bytes", ""]
    return Outcome({"boards": [_listed(board) for board in boards]}, format_table(head, rows))


def _listed(board: Board) -> dict[str, Any]:
    return {
        "name": board.name,
        "core": board.core,
        "validation": board.validation,
        "flash_bytes": board.flash_bytes,
        "ram_bytes": board.ram_bytes,
        "description": board.description,
        "hardware": board.run.kind,
        "flash_runners": [name for name, _ in board.flash_tools.tools],
    }


def _new(args: argparse.Namespace, folders: list[Path]) -> Outcome:
    if not args.like:
        raise UsageError("a new board is made from another.", hint="--from B.")
    file = create_board(args.what, args.like, Path(args.output), folders)
    said = f"{file}: change what differs, then firmwright boards check {file}."
    return Outcome({"file": str(file), "from": args.like}, said)


def _check(file: Path, folders: list[Path]) -> Outcome:
    if file.name != BOARD_FILE or not file.is_file():
        hint = f"name the file {BOARD_FILE}, in a folder called like the board."
        raise UsageError("this is not a board's file.", where=str(file), hint=hint)
    folder = file.resolve().parent
    board = load_board(folder.name, [folder.parent, *folders])
    return Outcome(_checked(board), _summary(board))


def _checked(board: Board) -> dict[str, Any]:
    clock = board.clock
    return {
        **_listed(board),
        "clock_hz": board.clock_hz if clock is None else clock.hz,
        "clock_settings": {} if clock is None else dict(clock.settings),
        "pools": [{"name": p.name, "size_bytes": p.size_bytes} for p in board.pools()],
    }


def _summary(board: Board) -> str:
    clock = board.clock
    speed = f"{board.clock_hz:,} Hz"
    if clock is not None:
        settings = ", ".join(f"{name} {value}" for name, value in clock.settings)
        speed = f"{clock.hz:,} Hz from {clock.source_hz:,} Hz ({settings}); else {speed}"
    pools = ", ".join(f"{p.name} {p.size_bytes or 0:,} bytes" for p in board.pools())
    runners = ", ".join(name for name, _ in board.flash_tools.tools) or "none named"
    rows: list[tuple[str, Cell]] = [
        ("board", f"{board.name}: {board.description}"),
        ("core", board.core),
        ("validation", EVIDENCE[board.validation]),
        ("clock", speed),
        ("console", f"{board.console.driver}, counter {board.counter.driver}"),
        ("pools", pools),
        ("flashed by", runners),
    ]
    regions: list[list[Cell]] = [
        [r.name, r.kind, f"{r.start:#010x}", r.size_bytes] for r in board.memory
    ]
    parts = [format_pairs(rows)]
    if regions:
        parts.append(format_table(["region", "kind", "start", "bytes"], regions))
    return "\n\n".join(parts)
