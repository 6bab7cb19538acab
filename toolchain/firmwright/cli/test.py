"""`firmwright test`: run the test suite of a checkout."""

import argparse
import sys

from firmwright.base.child_process import python_command, run_in_terminal
from firmwright.base.errors import ToolFailedError, UsageError
from firmwright.base.resources import checkout_dir
from firmwright.cli.verb import Outcome


def run(args: argparse.Namespace) -> Outcome:
    root = checkout_dir()
    if root is None:
        hint = "run firmwright selftest --board host, or ./fw test in a checkout."
        raise UsageError("an installed firmwright has no test suite.", hint=hint)
    command = python_command("SCons", "-Q", "check", *args.scons)
    # With --json, stdout is reserved for the JSON object.
    stdout = sys.stderr if args.json else None
    status = run_in_terminal(command, root, passes_everything=True, stdout=stdout)
    if status != 0:
        raise ToolFailedError(
            "the test suite failed; see the output above.",
            exit_status=status,
            command=command,
        )
    return Outcome({"command": [str(word) for word in command]}, "")
