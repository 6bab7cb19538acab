"""`firmwright monitor`: show a board's serial output as text."""

import argparse
import sys
import time

from firmwright.boards import load_board
from firmwright.cli.printing import print_text
from firmwright.cli.verb import Outcome
from firmwright.device.serial_port import SerialTransport, find_serial_port, usb_ports

POLL_S = 0.1


def run(args: argparse.Namespace) -> Outcome:
    port = args.port
    if not port:
        folders = args.board_dirs
        usb = load_board(args.board, folders).flash_tools.usb if args.board else ()
        port = find_serial_port(args.board or "monitor", usb, usb_ports())
    line = SerialTransport(port, baud=args.baud)
    received = bytearray()
    deadline = None if args.seconds is None else time.monotonic() + args.seconds
    try:
        while deadline is None or time.monotonic() < deadline:
            data = line.read(4096, POLL_S)
            received += data
            if data and not args.json:
                print_text(escape_unprintable(data), sys.stdout, end="")
    except KeyboardInterrupt:
        pass
    finally:
        line.close()
    text = escape_unprintable(bytes(received))
    return Outcome({"port": port, "bytes": len(received), "text": text})


def escape_unprintable(data: bytes) -> str:
    """Escape bytes but printable ASCII, tabs and line feeds; drop carriage returns."""
    characters: list[str] = []
    for byte in data:
        if byte == 0x0D:
            continue
        is_kept = 0x20 <= byte < 0x7F or byte in b"\n\t"
        characters.append(chr(byte) if is_kept else f"\\x{byte:02x}")
    return "".join(characters)
