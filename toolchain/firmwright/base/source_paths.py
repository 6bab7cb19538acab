"""Paths of files that Firmwright writes, and of those that a module may contribute.

A module's files are the C sources, headers, objects and archives of backends and custom
operators: `backend/NAME/...`. They never are files that a tool runs or reads on its
own, such as a build file.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

BACKEND_FILES_DIR: Final = "backend"
"""Project folder with one subfolder of C files per backend."""
BUILD_FLAGS_FILE: Final = "build.json"
"""File in a backend's folder with the compiler flags of its sources."""
_SUFFIXES: Final = (".c", ".h", ".inc", ".o", ".a")
_WORD: Final = r"[A-Za-z0-9_][\w.+-]*"
_MODULE_FILE: Final = re.compile(
    rf"backend/{_WORD}(/build\.json|(/{_WORD})+\.(c|h|inc|o|a))", re.ASCII
)
_PORT_DIGITS: Final = "0123456789¹²³"
_DEVICES: Final = frozenset(
    (
        *("con", "prn", "aux", "nul", "conin$", "conout$"),
        *(f"com{digit}" for digit in _PORT_DIGITS),
        *(f"lpt{digit}" for digit in _PORT_DIGITS),
    )
)
"""Names that Windows reserves in every folder, with any suffix."""


def path_problem(path: str) -> str:
    """Return why a file must not be at this path below a folder; "" if it may."""
    pure, windows = PurePosixPath(path), PureWindowsPath(path)
    if pure.is_absolute() or windows.drive or ".." in windows.parts or "\\" in path:
        return "leaves its folder"
    if str(pure) != path or not pure.parts:
        return "leaves its folder"
    if ":" in path or not path.isprintable():
        return "has characters that a path must not have"
    for part in pure.parts:
        if part.partition(".")[0].rstrip().casefold() in _DEVICES:
            return "has the name of a device"
        if part.endswith((".", " ")):
            return "ends in a dot or blank"
    return ""


def module_file_problem(path: str, others: Iterable[str] = ()) -> str:
    """Return why a module must not contribute this file to `others`; "" if it may."""
    if problem := path_problem(path):
        return problem
    if not _MODULE_FILE.fullmatch(path):
        suffixes = f"one of the suffixes {', '.join(_SUFFIXES)}"
        return f"is not {BACKEND_FILES_DIR}/NAME/FILE with {suffixes}"
    for other in others:
        if path.casefold() == other.casefold() and path != other:
            return "differs from another one in case only"
    return ""


def is_backend_file(path: str) -> bool:
    """Return whether the path is in the folder of backends, in any case."""
    return path.partition("/")[0].casefold() == BACKEND_FILES_DIR
