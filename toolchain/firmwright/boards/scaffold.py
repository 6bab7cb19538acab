"""Creation of a new board's file from the file of a similar board."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards.load import board_file, load_board

BOARD_FILE = "board.toml"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def create_board(name: str, like: str, place: Path, extra_dirs: Sequence[Path] = ()) -> Path:
    """Write `place/name/board.toml`, a copy of the board `like` with a new name and description.

    Raises UsageError if the name is invalid or the file exists.
    """
    if not _NAME.fullmatch(name) or name == "soc":
        raise UsageError(
            f"{name!r} is not a valid board name.",
            hint="small letters, digits, '-', '_' and '.', a letter or digit first.",
        )
    board = load_board(like, extra_dirs)
    file = place / name / BOARD_FILE
    if file.exists():
        raise UsageError("a board of that name exists.", where=str(file), hint="another name.")
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
