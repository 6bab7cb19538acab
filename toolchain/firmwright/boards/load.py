"""Finds and reads board files: `load_board(name)` and `list_boards()`.

In: a name and further directories. Out: `Board` values. Directories are searched in the order
given by the caller, then by the environment variable FIRMWRIGHT_BOARDS, then the project's own;
the first `NAME/board.toml` wins, and its soc is looked for in the same way.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from firmwright.base.errors import BoardError
from firmwright.base.resources import boards_dir
from firmwright.boards.schema import Board, read_board
from firmwright.boards.table import Table


def load_board(name: str, extra_dirs: Sequence[Path] = ()) -> Board:
    """The board called `name`; a BoardError lists near names when there is none."""
    directories = search_path(extra_dirs)
    for directory in directories:
        file = directory / name / "board.toml"
        if name and Path(name).name == name and file.is_file():
            return _read(file, directories)
    names = _names(directories)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
    raise BoardError(
        f"there is no board called {name!r}.",
        where=":".join(str(d) for d in directories),
        hint=f"{' or '.join(near)}." if near else "a directory of boards with --boards-dir.",
    )


def list_boards(extra_dirs: Sequence[Path] = ()) -> tuple[Board, ...]:
    """Every board on the search path, by name."""
    directories = search_path(extra_dirs)
    return tuple(load_board(name, extra_dirs) for name in _names(directories))


def search_path(extra_dirs: Sequence[Path] = ()) -> tuple[Path, ...]:
    """The directories that hold boards, first match first."""
    named = [Path(p) for p in os.environ.get("FIRMWRIGHT_BOARDS", "").split(os.pathsep) if p]
    return (*extra_dirs, *named, boards_dir())


def _names(directories: Sequence[Path]) -> list[str]:
    return sorted({file.parent.name for d in directories for file in d.glob("*/board.toml")})


def _read(file: Path, directories: Sequence[Path]) -> Board:
    values = _parse(file)
    shown = f"{file.parent.name}/{file.name}"
    table = Table(values, shown)
    if table.has("soc"):
        table = Table(values, shown, below=_read_soc(table, directories))
    return read_board(table, file.parent.name)


def _read_soc(table: Table, directories: Sequence[Path]) -> Table:
    name = table.text("soc")
    for directory in directories:
        file = directory / "soc" / f"{name}.toml"
        if Path(name).name == name and file.is_file():
            return Table(_parse(file), f"soc/{file.name}")
    names = sorted({file.stem for d in directories for file in (d / "soc").glob("*.toml")})
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
    what = f"there is no file soc/{name}.toml."
    raise BoardError(what, where=table.where("soc"), hint=f"{' or '.join(near)}.")


def _parse(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        where = f"{file.parent.name}/{file.name}"
        raise BoardError(f"this is not TOML: {problem}.", where=where) from problem
