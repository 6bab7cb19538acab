"""Writes a project's files into a directory that is empty or already holds a project of ours.

In: a `SourceTree` with its metadata.json. Out: the folder. Invariants: nothing is written outside
of it, not through links either; a file that is not ours is never changed or removed; of an earlier
compile only model files that this one no longer has are removed, since the build takes every C file
it finds there.
"""

from __future__ import annotations

from pathlib import Path

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.base.json_input import parse_json

MARKER = "metadata.json"
_OWNED = "files"


def write_project(tree: SourceTree, directory: Path) -> None:
    """Write `tree` into `directory`. UsageError: it holds something else, or cannot be written."""
    try:
        earlier = _check(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for path in tree.files:
            _check_inside(directory, path)
        for path in sorted(earlier - set(tree.files)):
            _remove_stale(directory, path)
        tree.write(directory)
    except OSError as error:
        raise UsageError(
            f"the project cannot be written: {error.strerror or error}.",
            where=str(directory),
            hint="another directory.",
        ) from error


def _check(directory: Path) -> set[str]:
    """The files of an earlier compile in `directory`; UsageError if it is not ours to write."""
    if directory.exists() and not directory.is_dir():
        raise UsageError("it is no directory.", where=str(directory), hint="another directory.")
    if not directory.exists() or not any(directory.iterdir()):
        return set()
    marker = directory / MARKER
    facts = _read_marker(marker)
    if facts is None:
        raise UsageError(
            f"the directory is not empty and holds no project of ours (no {MARKER}).",
            where=str(directory),
            hint="an empty or new directory.",
        )
    owned = facts.get(_OWNED, [])
    return {path for path in owned if isinstance(path, str)} if isinstance(owned, list) else set()


def _read_marker(marker: Path) -> dict[str, object] | None:
    if not marker.is_file():
        return None
    try:
        facts = parse_json(marker.read_text(encoding="utf-8"))
    except ValueError:
        return None
    ours = isinstance(facts, dict) and "schema" in facts and "model" in facts
    return facts if ours else None


def _check_inside(directory: Path, path: str) -> None:
    target = (directory / path).resolve()
    if not target.is_relative_to(directory.resolve()):
        raise UsageError(f"{path} is a link that leaves the directory.", where=str(directory))


def _remove_stale(directory: Path, path: str) -> None:
    """Removes a file of an earlier compile that is listed as such and lies in model/."""
    file = directory / path
    if path.startswith("model/") and ".." not in path.split("/") and file.is_file():
        _check_inside(directory, path)
        file.unlink()


def add_file_list(facts: dict[str, object], tree: SourceTree) -> dict[str, object]:
    """`facts` for metadata.json with the model files it stands beside, for the next compile."""
    return {**facts, _OWNED: sorted(path for path in tree.files if path.startswith("model/"))}
