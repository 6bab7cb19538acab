"""`firmwright erase`: a board's whole flash, emptied by its tool."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from firmwright.boards import load_board
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.cli.shared_options import Outcome
from firmwright.flows.flashing import erase, plan_erase

NAME = "erase"
HELP = "empty a board's flash"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--board", metavar="B", required=True, help="firmwright boards lists them")
    parser.add_argument("--boards-dir", metavar="DIR", action="append", default=[], help="more")
    parser.add_argument(
        "--runner",
        choices=tuple(FLASH_RUNNERS),
        default="",
        help="the one that the board's file prefers",
    )
    parser.add_argument("--dry-run", action="store_true", help="say the commands, run none")


def run(args: argparse.Namespace) -> Outcome:
    board = load_board(args.board, [Path(directory) for directory in args.boards_dir])
    plan = plan_erase(board, args.runner)
    data = {
        "board": board.name,
        "runner": plan.runner,
        "commands": [list(command) for command in plan.commands],
    }
    if args.dry_run:
        return Outcome(data, "\n".join(shlex.join(command) for command in plan.commands))
    erase(plan)
    return Outcome(data, f"{board.name}: erased by {plan.runner}.")
