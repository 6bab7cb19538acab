"""`firmwright mcp`: serve agents by the Model Context Protocol."""

import argparse
import importlib.util

from firmwright.base.errors import ToolMissingError
from firmwright.cli.verb import Outcome
from firmwright.extensions.mcp.command_runner import open_root

DEFAULT_TIMEOUT_S = 300.0


def run(args: argparse.Namespace) -> Outcome:
    """Serve until the client closes stdin."""
    if importlib.util.find_spec("mcp") is None:
        what = "the package mcp is not installed."
        raise ToolMissingError(what, hint="pip install 'firmwright[mcp]'.")
    from firmwright.extensions.mcp.tools import make_server

    runner = open_root(args.root, args.timeout or DEFAULT_TIMEOUT_S)
    make_server(runner).run()
    return Outcome()
