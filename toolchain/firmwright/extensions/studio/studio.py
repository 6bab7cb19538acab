"""`firmwright studio`: serve the page, and open it in a browser."""

import argparse
import sys
import tempfile
import webbrowser
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.cli.verb import Outcome
from firmwright.extensions.studio.server import StudioServer
from firmwright.extensions.studio.workbench import Workbench

_PORT_MAX = 65535


def run(args: argparse.Namespace) -> Outcome:
    """Serve until the user interrupts it; all files of the page are then removed."""
    port = args.tcp_port or 0
    if port > _PORT_MAX:
        what = f"{port} is not a TCP port."
        raise UsageError(what, where="--tcp-port", hint=f"at most {_PORT_MAX}.")
    with tempfile.TemporaryDirectory(prefix="firmwright-studio-") as folder:
        server = _open(Workbench(Path(folder)), port)
        # The address has the token, so it is not part of any log.
        print(f"The studio is at {server.address}", file=sys.stderr, flush=True)
        print("Press Ctrl+C to end it.", file=sys.stderr, flush=True)
        if not args.no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return Outcome({}, "The studio has ended.")
        finally:
            server.server_close()
    return Outcome()


def _open(workbench: Workbench, port: int) -> StudioServer:
    try:
        return StudioServer(workbench, port)
    except OSError as error:
        what = f"the port cannot be opened: {error.strerror}."
        raise UsageError(what, where="--tcp-port", hint="another port.") from error
