"""`firmwright flash`: firmware onto a board, by the tool that its file names or by none at all."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.boards.flashing import RUNNERS
from firmwright.build import build_project, project_board
from firmwright.cli.base import Outcome, add_compile_options, add_model, compiled_of
from firmwright.device.discovery import Choose, Port
from firmwright.flows.flashing import Flashed, FlashPlan, flash, plan_flashing
from firmwright.flows.images import build_image
from firmwright.flows.loading import (
    Loadable,
    Loaded,
    goes_by_loader,
    load_by_loader,
    loadable,
    loadable_folder,
    loader_port,
)

NAME = "flash"
HELP = "put firmware into a board's flash and start it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, ".tflite, .onnx or .fwir file, or the folder that compile wrote")
    add_runner(parser)
    parser.add_argument("--verify", action="store_true", help="read it back and compare")
    parser.add_argument(
        "--model-only",
        action="store_true",
        help="through the resident loader: the model alone, for the application that is there",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, the commands of the tool"
    )
    add_compile_options(parser)


def add_runner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runner", choices=tuple(RUNNERS), default="", help="the one that the board's file prefers"
    )
    parser.add_argument(
        "--address",
        "--port",
        metavar="WHERE",
        default="",
        help="of gdb: HOST:PORT or unix:PATH; of serial: the port; of uf2: the volume's folder",
    )


def run(args: argparse.Namespace) -> Outcome:
    board = _board_of(args)
    if goes_by_loader(board, args.runner):
        return _by_loader(args, board)
    if args.model_only:
        raise UsageError(
            "--model-only needs the resident loader on the board.",
            where=board.name,
            hint='--runner serial, with serial = "loader" in the board\'s file.',
        )
    plan = plan_of(args)
    commands = plan.commands(verify=args.verify)
    if args.dry_run:
        return _shown(plan, commands)
    done = flash(plan, verify=args.verify, address=args.address, choose=asker())
    return Outcome(_describe(done), _said(done))


def plan_of(args: argparse.Namespace) -> FlashPlan:
    """The image of a model or a project, with the runner that the options ask for."""
    folder = Path(args.model)
    if folder.is_dir():
        image = build_project(folder)
        board = _board(image.board, args)
    else:
        compiled = compiled_of(args)
        image, board = build_image(compiled), compiled.board
    return plan_flashing(board, image, args.runner, args.address)


def _board_of(args: argparse.Namespace) -> Board:
    folder = Path(args.model)
    if folder.is_dir():
        return _board(project_board(folder), args)
    if not args.board:
        raise UsageError("which board?", where="flash", hint="--board B.")
    return load_board(args.board, [Path(directory) for directory in args.boards_dir])


def _board(name: str, args: argparse.Namespace) -> Board:
    if args.board and args.board != name:
        what = f"the project is for board {name}, not {args.board}."
        raise UsageError(what, where=args.model, hint="leave --board out.")
    return load_board(name, [Path(directory) for directory in args.boards_dir])


def asker() -> Choose | None:
    """Asks a person which port it is; where nobody sits there, None."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(ports: Sequence[Port]) -> Port:
    for number, port in enumerate(ports, 1):
        print(f"{number}: {port}", file=sys.stderr)
    while True:
        print("which one? ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            raise UsageError("no port was chosen.", hint="--address PORT.")
        if answer.isdigit() and 1 <= int(answer) <= len(ports):
            return ports[int(answer) - 1]


def _by_loader(args: argparse.Namespace, board: Board) -> Outcome:
    what = _loadable(args)
    if args.dry_run:
        data = {"board": board.name, "runner": "serial", "commands": []}
        said = f"serial: {what.name}, linked for the slot that the loader says is free."
        return Outcome(data, said)
    with loader_port(board, args.address, asker()) as line:
        done = load_by_loader(what, board, line, verify=args.verify, model_only=args.model_only)
    return Outcome(_describe_loaded(done), _said_loaded(what, done))


def _loadable(args: argparse.Namespace) -> Loadable:
    folder = Path(args.model)
    return loadable_folder(folder) if folder.is_dir() else loadable(compiled_of(args))


def _describe_loaded(done: Loaded) -> dict[str, object]:
    return {
        "board": done.board,
        "runner": "serial",
        "place": done.place,
        "slot": done.slot,
        "model_only": done.model_only,
        "size_bytes": done.size_bytes,
        "sent_bytes": done.sent_bytes,
        "verified": done.verified,
    }


def _said_loaded(what: Loadable, done: Loaded) -> str:
    kind = "the model alone" if done.model_only else "the application"
    sent = "all" if done.sent_bytes == done.size_bytes else f"{done.sent_bytes:,} of them"
    checked = ", read back and compared" if done.verified else ""
    return (
        f"{what.name} on {done.board}: {kind}, {done.size_bytes:,} bytes in slot {done.slot} "
        f"({sent} sent over {done.place}){checked}. It answers, and stays."
    )


def _shown(plan: FlashPlan, commands: Sequence[Sequence[str]]) -> Outcome:
    lines = [shlex.join(command) for command in commands]
    said = "\n".join(lines) or f"{plan.runner}: {plan.image.size_bytes:,} bytes, by no other tool."
    data = {
        "board": plan.board.name,
        "runner": plan.runner,
        "size_bytes": plan.image.size_bytes,
        "commands": [list(command) for command in commands],
    }
    return Outcome(data, said)


def _describe(done: Flashed) -> dict[str, object]:
    return {
        "board": done.board,
        "runner": done.runner,
        "place": done.place,
        "size_bytes": done.size_bytes,
        "verified": done.verified,
    }


def _said(done: Flashed) -> str:
    checked = ", read back and compared" if done.verified else ""
    return f"{done.board}: {done.size_bytes:,} bytes by {done.runner} ({done.place}){checked}."
