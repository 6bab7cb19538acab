"""`firmwright test`: run the test suite of a checkout."""

import argparse
import subprocess
import sys

from firmwright.base.errors import ToolFailedError, UsageError
from firmwright.base.resources import checkout_dir
from firmwright.cli.verb import Outcome


def run(args: argparse.Namespace) -> Outcome:
    root = checkout_dir()
    if root is None:
        hint = "run firmwright selftest --board host, or ./fw test in a checkout."
        raise UsageError("an installed firmwright has no test suite.", hint=hint)
    command = [sys.executable, "-m", "SCons", "-Q", "check", *args.scons]
    # With --json, stdout is reserved for the JSON object.
    status = subprocess.run(
        command, cwd=root, stdout=sys.stderr if args.json else None, check=False
    ).returncode
    if status != 0:
        raise ToolFailedError(
            "the test suite failed; see the output above.", exit_status=status, command=command
        )
    return Outcome({"command": command}, "")
