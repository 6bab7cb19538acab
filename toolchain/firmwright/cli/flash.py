"""`firmwright flash`: flash firmware to a board."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.cli import arguments
from firmwright.cli.boot_loaders import boot_loaders, check_flash_options
from firmwright.cli.build import check_board
from firmwright.cli.verb import Outcome
from firmwright.device.serial_port import PortChooser, SerialPortInfo
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.flashing import FlashPlan, flash, plan_flashing


def run(args: argparse.Namespace) -> Outcome:
    check_flash_options(args)
    if loader := boot_loaders().get(args.runner):
        return loader.flash(args)
    plan = build_and_plan_flash(args)
    commands = plan.commands(verify=args.verify)
    if args.dry_run:
        size_bytes = plan.image.size_bytes
        text = f"{plan.runner}: {size_bytes:,} bytes, without an external tool."
        data = {
            "board": plan.board.name,
            "runner": plan.runner,
            "size_bytes": size_bytes,
        }
        lines = [shlex.join(command) for command in commands]
        return Outcome({**data, "commands": commands}, "\n".join(lines) or text)
    result = flash(plan, verify=args.verify, address=args.address, choose=port_prompt())
    checked = ", verified" if result.verified else ""
    size = f"{result.size_bytes:,} bytes flashed"
    text = f"{result.board}: {size} by {result.runner} ({result.place}){checked}."
    return Outcome(asdict(result), text)


def build_and_plan_flash(args: argparse.Namespace) -> FlashPlan:
    folder = Path(args.model)
    if folder.is_dir():
        image = build_project(
            folder, variant=args.variant, allow_stack=args.allow_stack
        )
        check_board(args, image.board)
        board = load_board(image.board, args.board_dirs)
    else:
        compiled = arguments.compile_from_args(args)
        board = compiled.board
        image = build_image(compiled, args.variant, allow_stack=args.allow_stack)
    return plan_flashing(board, image, args.runner, args.address)


def port_prompt() -> PortChooser | None:
    """Return a function that asks for the port, or None without a terminal."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(ports: Sequence[SerialPortInfo]) -> SerialPortInfo:
    for number, port in enumerate(ports, 1):
        print(f"{number}: {port}", file=sys.stderr)
    while True:
        print("port number: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            raise UsageError("no port was chosen.", hint="add --address PORT.")
        if answer.isdigit() and 1 <= int(answer) <= len(ports):
            return ports[int(answer) - 1]
