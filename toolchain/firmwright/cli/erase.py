"""`firmwright erase`: erase a board's flash with its flash tool."""

import argparse
import shlex

from firmwright.boards import load_board
from firmwright.cli.verb import Outcome
from firmwright.flows.board.flashing import erase, plan_erase


def run(args: argparse.Namespace) -> Outcome:
    board = load_board(args.board, args.board_dirs)
    plan = plan_erase(board, args.runner)
    data = {"board": board.name, "runner": plan.runner, "commands": plan.commands}
    if args.dry_run:
        lines = [shlex.join(command) for command in plan.commands]
        return Outcome(data, "\n".join(lines))
    erase(plan)
    return Outcome(data, f"{board.name}: erased by {plan.runner}.")
