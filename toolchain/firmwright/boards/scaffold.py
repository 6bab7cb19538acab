"""A new board's file, from that of a board like it.

In: a name, the board it is like, the folder of boards that takes it. Out: the file, which
reads. It is the other's text with another name and the evidence `built`, so that comments stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards.load import board_file, load_board

BOARD_FILE = "board.toml"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def create_board(name: str, like: str, place: Path, extra_dirs: Sequence[Path] = ()) -> Path:
    """Write `place/name/board.toml`; a UsageError where there is one, or the name is none."""
    if not _NAME.fullmatch(name) or name == "soc":
        hint = "small letters, digits, '-', '_' and '.', a letter or digit first."
        raise UsageError(f"{name!r} is no name for a board.", hint=hint)
    board = load_board(like, extra_dirs)
    file = place / name / BOARD_FILE
    if file.exists():
        raise UsageError("there is a board of that name.", where=str(file), hint="another name.")
    text = board_file(like, extra_dirs).read_text(encoding="utf-8")
    for key, value in (
        ("name", name),
        ("description", f"{name}, from {like} ({board.description})"),
        ("validation", "built"),
    ):
        text = re.sub(rf"(?m)^{key} = .*$", f'{key} = "{value}"', text, count=1)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="\n")
    load_board(name, (place, *extra_dirs))
    return file
