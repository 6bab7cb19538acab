"""`firmwright flash`: flash firmware to a board."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.boards.mcuboot import MCUBOOT
from firmwright.build import build_project
from firmwright.cli import arguments
from firmwright.cli.build import check_board
from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.device.serial_port import PortChooser, SerialPortInfo, find_serial_port, usb_ports
from firmwright.device.smp_update import send_update
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.flashing import FlashPlan, flash, plan_flashing
from firmwright.flows.board.mcuboot import read_update


def run(args: argparse.Namespace) -> Outcome:
    if args.runner == MCUBOOT:
        return _send_update(args)
    if args.confirm:
        what = "--confirm needs --runner mcuboot; other tools replace the firmware at once."
        raise UsageError(what, where="flash", hint="omit --confirm.")
    plan = build_and_plan_flash(args)
    commands = plan.commands(verify=args.verify)
    if args.dry_run:
        size_bytes = plan.image.size_bytes
        text = f"{plan.runner}: {size_bytes:,} bytes, without an external tool."
        data = {"board": plan.board.name, "runner": plan.runner, "size_bytes": size_bytes}
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
        image = build_project(folder, allow_stack=args.allow_stack)
        check_board(args, image.board)
        board = load_board(image.board, args.board_dirs)
    else:
        compiled = arguments.compile_from_args(args)
        image, board = build_image(compiled, allow_stack=args.allow_stack), compiled.board
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


_STATE_NOTES = {
    "test": "the application confirms it, or the next restart reverts it.",
    "unconfirmed": "the application has not confirmed it: this restart reverts it.",
}


def _send_update(args: argparse.Namespace) -> Outcome:
    update = read_update(Path(args.model))
    if args.dry_run:
        lines = [
            f"{image.file}: image {image.number}, {len(image.data):,} bytes"
            for image in update.images
        ]
        return Outcome({"runner": args.runner, "commands": []}, "\n".join(lines))
    port = args.address
    if not port:
        usb = load_board(update.board, args.board_dirs).flash_tools.usb
        port = find_serial_port(update.board, usb, usb_ports(), port_prompt())
    results = send_update(update.images, port, confirm=args.confirm)
    rows = [[r.image, r.version, r.file, r.sent_bytes, r.state] for r in results]
    states = sorted({r.state for r in results} & _STATE_NOTES.keys())
    notes = [f"{state}: {_STATE_NOTES[state]}" for state in states]
    table = format_table(["image", "version", "file", "bytes sent", "state"], rows)
    data = {"runner": args.runner, "place": port, "images": [asdict(r) for r in results]}
    return Outcome(data, "\n".join([table, *notes]))
