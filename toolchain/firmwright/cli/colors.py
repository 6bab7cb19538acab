"""Colors of text on terminals: table heads, bars, verdicts, and the prefix of messages."""

import os
import re
from typing import TextIO

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
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colorize(text: str) -> str:
    for pattern, parameters in _STYLES:
        text = pattern.sub(rf"\033[{parameters}m\g<0>\033[0m", text)
    return text
