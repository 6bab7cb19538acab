"""`firmwright debug`: run GDB on a running model, stopped at an operator's start."""

import argparse
import shlex
from pathlib import Path

from firmwright.base.child_process import run_in_terminal
from firmwright.base.errors import UsageError
from firmwright.cli import arguments
from firmwright.cli.verb import Outcome
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.gdb_session import (
    check_operator,
    debug_commands,
    find_debugger,
    start_halted,
)
from firmwright.pipeline import Compilation


def run(args: argparse.Namespace) -> Outcome:
    """Start GDB on an emulator, or print the commands for a physical board."""
    if not args.board:
        raise UsageError("no board was given.", where="debug", hint="add --board B.")
    compiled = arguments.compile_from_args(args)
    check_operator(compiled, args.operator)
    if compiled.board.run.kind == "qemu":
        return _debug_emulator(compiled, args.operator)
    image = build_image(compiled, "profile")
    plan = debug_commands(compiled.board, image.elf, "", args.operator)
    data = {"board": compiled.board.name, "server": plan.server, "gdb": plan.gdb}
    commands = [command for command in (plan.server, plan.gdb) if command]
    return Outcome(data, "\n".join(map(shlex.join, commands)))


def _debug_emulator(compiled: Compilation, operator: int | None) -> Outcome:
    debugger = find_debugger(compiled.board.toolchain)
    with start_halted(compiled) as (image, address):
        plan = debug_commands(compiled.board, image.elf, address, operator)
        command = (debugger, *plan.gdb[1:])
        status = run_in_terminal(command, Path.cwd())
    data = {
        "board": compiled.board.name,
        "server": [],
        "gdb": command,
        "status": status,
    }
    return Outcome(data)
