"""`firmwright monitor`: what a board says by itself, as text."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from firmwright.boards import load_board
from firmwright.cli.shared_options import Outcome, positive_seconds
from firmwright.device.serial_port_discovery import find_serial_port, usb_ports
from firmwright.device.serial_transport import DEFAULT_BAUD, SerialTransport

NAME = "monitor"
HELP = "show what a board says over its serial port"
POLL_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--board", metavar="B", help="to find the port by the board's USB ids")
    parser.add_argument("--boards-dir", metavar="DIR", action="append", default=[], help="more")
    parser.add_argument("--port", metavar="URL", default="", help="serial port or pyserial URL")
    parser.add_argument("--baud", type=int, default=DEFAULT_BAUD, help=f"({DEFAULT_BAUD})")
    parser.add_argument(
        "--seconds", metavar="S", type=positive_seconds, default=None, help="end by itself (never)"
    )


def run(args: argparse.Namespace) -> Outcome:
    """Until it is interrupted, or the time is over. What is no text is shown as escapes."""
    port = args.port
    if not port:
        folders = [Path(directory) for directory in args.boards_dir]
        usb = load_board(args.board, folders).flash_tools.usb if args.board else ()
        port = find_serial_port(args.board or "monitor", usb, usb_ports())
    line = SerialTransport(port, baud=args.baud)
    heard = bytearray()
    until = None if args.seconds is None else time.monotonic() + args.seconds
    try:
        while until is None or time.monotonic() < until:
            data = line.read(4096, POLL_S)
            heard += data
            if data and not args.json:
                sys.stdout.write(escape_unprintable(data))
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    finally:
        line.close()
    return Outcome({"port": port, "bytes": len(heard), "text": escape_unprintable(bytes(heard))})


def escape_unprintable(data: bytes) -> str:
    """Printable ASCII and line ends as they are, every other byte as an escape."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F or byte in b"\n\t" else f"\\x{byte:02x}"
        for byte in data
        if byte != 0x0D
    )
