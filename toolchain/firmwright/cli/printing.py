"""Output to the terminal, without control characters of models, devices and logs."""

import os
import re
import sys
import traceback
from pathlib import Path
from typing import TextIO

from firmwright.base.errors import EXIT_FAILED

_CONTROL = re.compile(
    r"[^\n\t\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\U0010ffff]"
)
"""Characters for cursors, line ends, a terminal's state or a text's direction."""


def visible_text(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def open_closed_streams() -> None:
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:
            closed = Path(os.devnull).open("w", encoding="utf-8", newline="")  # noqa: SIM115 - until the end
            setattr(sys, stream, closed)


def print_text(
    text: str, stream: TextIO, end: str = "\n", *, is_colored: bool = False
) -> None:
    """Print without control characters, in color if requested; exit on failure."""
    encoding = stream.encoding or "utf-8"
    printable = visible_text(text).encode(encoding, "backslashreplace").decode(encoding)
    if is_colored and has_colors(stream):
        printable = colorize(printable)
    try:
        print(printable, file=stream, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as problem:
        if stream is sys.stdout:
            what = f"firmwright: the output cannot be written: {problem.strerror}."
            print_text(what, sys.stderr)
        # Keep the interpreter from flushing to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(EXIT_FAILED)


def write_traceback() -> None:
    print_text(traceback.format_exc(), sys.stderr, end="")


_STYLES = (
    (re.compile(r"^.*(?=\n[ ]*─)", re.MULTILINE), "1"),
    (re.compile(r"─{2,}"), "2"),
    (re.compile(r"[█▓]+"), "36"),
    (re.compile(r"bit-exact|within the tolerance"), "32"),
    (re.compile(r"^firmwright:|(?<=\. )Try:(?= )"), "1"),
)
"""Patterns, and the SGR parameters of their matches."""


def has_colors(stream: TextIO) -> bool:
    """Follow https://no-color.org: colors on terminals, unless NO_COLOR is set."""
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def colorize(text: str) -> str:
    for pattern, parameters in _STYLES:
        text = pattern.sub(rf"\033[{parameters}m\g<0>\033[0m", text)
    return text
