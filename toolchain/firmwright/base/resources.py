"""Locations of the package's data files; installed copies are under `_data`."""

from pathlib import Path

from firmwright.base.errors import InternalError

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parents[1]


def checkout_dir() -> Path | None:
    """Return the root of this package's checkout; None if it is installed."""
    return _CHECKOUT if (_CHECKOUT / "SConstruct").is_file() else None


def runtime_dir() -> Path:
    return _find("runtime_c")


def boards_dir() -> Path:
    return _find("boards")


def digits_dir() -> Path:
    return _find("examples/01_digits")


def benchmarks_dir() -> Path:
    return _find("benchmarks")


def _find(name: str) -> Path:
    checkout = checkout_dir()
    installed = _PACKAGE / "_data" / name
    for candidate in (installed,) if checkout is None else (checkout / name, installed):
        if candidate.is_dir():
            return candidate
    what = f"the folder {name} is missing from this installation."
    raise InternalError(what, where=str(installed), hint="install firmwright again.")
