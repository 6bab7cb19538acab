"""Finds and reads board files and the files of chips.

Search order: the caller's directories, FIRMWRIGHT_BOARDS, installed packages (entry
points of group `firmwright.boards`: a module next to its board folders, or a path), the
project's own boards.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from firmwright.base.errors import BoardError
from firmwright.base.input_files import read_input_text
from firmwright.base.plugin_calls import entry_points, load_entry_point
from firmwright.base.resources import boards_dir
from firmwright.boards.reader import read_board
from firmwright.boards.schema import Board, with_memory_of
from firmwright.boards.toml_table import TomlTable

ENTRY_POINT_GROUP = "firmwright.boards"
"""The entry point group of packages with boards."""
BOARD_FILE = "board.toml"
CHIP_FOLDER = "soc"


def load_board(name: str, extra_dirs: Sequence[Path] = ()) -> Board:
    """Return the board called `name`, or the chip of that name as a board of its own.

    A chip may be named by its order number, in capital letters as well.

    "EMULATED@CHIP" is the first board with the memory sizes and flash of the second.

    Raises:
        BoardError: there is no such board; the hint names similar ones.
    """
    name, _, chip = name.partition("@")
    directories = search_path(extra_dirs)
    is_board = _find_board_file(name, directories) is not None
    if not is_board and _is_order_number(name, _chip_of(name, directories)):
        board = load_chip(name, extra_dirs)
    else:
        board = _read_board_file(board_file(name, extra_dirs), directories)
    return with_memory_of(board, load_board(chip, extra_dirs)) if chip else board


def _read_board_file(file: Path, directories: Sequence[Path]) -> Board:
    table = TomlTable(_parse_toml(file), f"{file.parent.name}/{file.name}")
    if table.has("soc"):
        table = replace(table, below=_read_soc(table, directories))
    return read_board(table, file.parent.name)


def board_file(name: str, extra_dirs: Sequence[Path] = ()) -> Path:
    """Return the file of the board called `name`, the first on the search path."""
    directories = search_path(extra_dirs)
    file = _find_board_file(name, directories)
    if file is None:
        chips = [chip.name for chip in list_chips(extra_dirs)]
        boards = _board_names(directories)
        near = _similar(name.lower(), [*boards, *chips], boards)
        hint = f"{near}; `firmwright boards` lists all of them, --chips the chips."
        if not extra_dirs:
            hint += " Boards of your own need --boards-dir DIR."
        raise BoardError(f"there is no board called {name!r}.", hint=hint)
    return file


def _find_board_file(name: str, directories: Sequence[Path]) -> Path | None:
    for directory in directories:
        file = directory / name / BOARD_FILE
        if name and Path(name).name == name and file.is_file():
            return file
    return None


def list_boards(extra_dirs: Sequence[Path] = ()) -> tuple[Board, ...]:
    """Return every board on the search path, sorted by name."""
    directories = search_path(extra_dirs)
    return tuple(load_board(name, extra_dirs) for name in _board_names(directories))


def search_path(extra_dirs: Sequence[Path] = ()) -> tuple[Path, ...]:
    variable = os.environ.get("FIRMWRIGHT_BOARDS", "")
    named = [Path(part) for part in variable.split(os.pathsep) if part]
    return (*extra_dirs, *named, *_installed_dirs(), boards_dir())


def _installed_dirs() -> tuple[Path, ...]:
    found = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        value = load_entry_point(point)
        if isinstance(value, ModuleType) and value.__file__ is not None:
            found.append(Path(value.__file__).parent)
        elif isinstance(value, str | Path):
            found.append(Path(value))
        else:
            where = f"{ENTRY_POINT_GROUP}: {point.name} = {point.value}"
            what = "this entry point is neither a module nor a path."
            raise BoardError(what, where=where)
    return tuple(found)


def _board_names(directories: Sequence[Path]) -> list[str]:
    names: set[str] = set()
    for directory in directories:
        names.update(file.parent.name for file in directory.glob("*/board.toml"))
    return sorted(names)


def _soc_names(directories: Sequence[Path]) -> list[str]:
    names: set[str] = set()
    for directory in directories:
        names.update(file.stem for file in (directory / CHIP_FOLDER).glob("*.toml"))
    return sorted(names)


def list_chips(extra_dirs: Sequence[Path] = ()) -> tuple[Board, ...]:
    """Return every chip with a file on the search path, sorted by name.

    Files without a description are parts of emulated machines.
    """
    directories = search_path(extra_dirs)
    chips: list[Board] = []
    for name in _soc_names(directories):
        table = _chip_table(name, directories)
        if table.has("description"):
            chips.append(read_board(table, name))
    return tuple(chips)


def load_chip(part: str, extra_dirs: Sequence[Path] = ()) -> Board:
    """Return the chip `part` as a board of its own, without a console by default.

    `part` may be longer than the name of the chip's file, as an order number is.

    Raises:
        BoardError: there is no such chip; the hint names similar ones.
    """
    directories = search_path(extra_dirs)
    if name := _chip_of(part, directories):
        return read_board(_chip_table(name, directories), name)
    near = _similar(_normal(part), [chip.name for chip in list_chips(extra_dirs)])
    hint = (
        f"{near}; `firmwright boards --chips` lists all of them. For another chip of "
        "such a family, override [[memory]] in the board file."
    )
    raise BoardError(f"there is no chip called {part!r}.", hint=hint)


def _chip_of(part: str, directories: Sequence[Path]) -> str:
    """Return the longest name of a chip's file that `part` begins with; "" without.

    Files without a description are parts of emulated machines.
    """
    wanted = _normal(part)
    names = _soc_names(directories)
    fitting = [name for name in names if wanted.startswith(_normal(name))]
    name = max(fitting, key=len, default="")
    if name and _chip_table(name, directories).has("description"):
        return name
    return ""


def _is_order_number(name: str, chip: str) -> bool:
    """Return whether the name of a board is that of a chip, or its order number.

    The name of a board may begin with that of its chip, as in nrf52840-dk.
    """
    if not chip:
        return False
    package = name.lower().removeprefix(chip)
    is_package = package != name.lower() and re.fullmatch("[a-z0-9]{0,4}", package)
    return _normal(name) == _normal(chip) or bool(is_package)


def _normal(part: str) -> str:
    return re.sub(r"[^a-z0-9]", "", part.lower())


def _chip_table(name: str, directories: Sequence[Path]) -> TomlTable:
    """Return the table of a board without a console, unless the chip states one."""
    values: dict[str, object] = {"name": name, "soc": name, "run": {"kind": "serial"}}
    table = TomlTable(values, f"soc/{name}.toml")
    table = replace(table, below=_read_soc(table, directories))
    if not table.has("console"):
        values["console"] = {"driver": "none"}
    return table


def _read_soc(table: TomlTable, directories: Sequence[Path]) -> TomlTable:
    name = table.text("soc")
    for directory in directories:
        file = directory / CHIP_FOLDER / f"{name}.toml"
        if Path(name).name == name and file.is_file():
            return TomlTable(_parse_toml(file), f"soc/{file.name}")
    hint = f"{_similar(name, _soc_names(directories))}."
    raise table.error("soc", f"there is no file soc/{name}.toml.", hint)


def _similar(name: str, names: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return the names that begin with `name`, or the most similar ones.

    Similar names that begin alike, as those of a family of chips, come first. If none
    is similar, return `others`, by default all names.
    """
    longer = [other for other in names if name and other.startswith(name)]
    near = longer or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    near.sort(key=lambda other: -_common_letters(other, name))
    return ", ".join(near or others or names)


def _common_letters(one: str, other: str) -> int:
    """Return the number of letters that both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _parse_toml(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(read_input_text(file))
    except OSError as problem:
        what = f"the file cannot be read: {problem.strerror}."
        raise BoardError(what, where=str(file)) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        where = f"{file.parent.name}/{file.name}"
        raise BoardError(f"this is not TOML: {problem}.", where=where) from problem
