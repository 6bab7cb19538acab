"""Finds the data that travels beside the package: `runtime_c/`, `boards/`, the example, figures.

In: nothing but this file's own place. Out: existing directories. In a checkout (a parent with an
SConstruct) the folders of the checkout are taken, so that an edit is seen at once; an installed
package carries copies under `firmwright/_data`. An editable install may hold stale copies there,
therefore the checkout is asked first.
"""

from __future__ import annotations

from pathlib import Path

from firmwright.base.errors import InternalError

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parents[1]


def checkout_dir() -> Path | None:
    """The root of the checkout that this package runs from, or None when it is installed."""
    return _CHECKOUT if (_CHECKOUT / "SConstruct").is_file() else None


def runtime_dir() -> Path:
    """The directory that holds `fwr.h`."""
    return _find("runtime_c")


def boards_dir() -> Path:
    """The directory that holds one folder a board, and `soc/`."""
    return _find("boards")


def digits_dir() -> Path:
    """The directory of the bundled example: digits.tflite with held-out images and labels."""
    return _find("examples/01_digits")


def benchmarks_dir() -> Path:
    """The directory that holds `peers.csv`."""
    return _find("benchmarks")


def _find(name: str) -> Path:
    checkout = checkout_dir()
    candidates = [_PACKAGE / "_data" / name]
    if checkout is not None:
        candidates.insert(0, checkout / name)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise InternalError(
        f"the folder {name} is missing from this installation.",
        where=str(candidates[-1]),
        hint="install firmwright again.",
    )
