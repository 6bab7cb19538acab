"""What the user trusts: programs by name, and files and folders with code.

The code of a trusted file or folder may run on this computer.

Firmwright runs its own code, installed packages, and what the command line names. Code
that comes with data (C in a module, keys of a project file that run something, the
build files of a project folder) runs only if the user trusts the file that brings it,
or a folder above it.
"""

import os
from pathlib import Path
from typing import Final

from firmwright.base.errors import UsageError

TRUST_VARIABLE: Final = "FIRMWRIGHT_TRUST"
"""The trusted programs, files and folders (absolute paths), separated as in PATH."""


def trusts_program(program: str) -> bool:
    return program in _trusted()


def trusts_path(path: str | Path) -> bool:
    """Return whether the user trusts this path, or a folder that contains it."""
    trusted = {Path(item).resolve() for item in _trusted() if Path(item).is_absolute()}
    resolved = Path(path).resolve()
    return not trusted.isdisjoint((resolved, *resolved.parents))


def untrusted_error(what: str, path: str | Path) -> UsageError:
    """Return the error about code in `path` that would run on this computer."""
    option = f"add --trust {path}, which lets its code run on this PC."
    hint = f"read {path}; if you trust it, {option}"
    return UsageError(what, where=str(path), hint=hint)


def trusted_value(text: str) -> str:
    """Return the value of `--trust`: also the absolute path if it is a file or folder.

    Raise ValueError for a path that cannot be an element of the variable.
    """
    if not os.path.exists(text):
        return text
    path = os.path.abspath(text)
    if os.pathsep in path:
        raise ValueError(f"{text!r}: a trusted path cannot contain {os.pathsep!r}")
    return text if text == path else f"{text}{os.pathsep}{path}"


def _trusted() -> list[str]:
    items = os.environ.get(TRUST_VARIABLE, "").split(os.pathsep)
    return [item for item in items if item]
