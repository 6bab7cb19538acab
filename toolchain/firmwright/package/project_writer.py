"""Writes a project into a directory that is empty or contains an earlier project.

Nothing is written outside the directory, not even through links, and other files are
never changed. Stale model files are removed.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from firmwright.artifacts import MARKER, SourceTree, holds_nothing
from firmwright.base.cache_folder import cache_root
from firmwright.base.errors import UsageError
from firmwright.base.file_lock import hold_lock
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import JsonObject, as_object, as_texts, parse_json
from firmwright.package.metadata_reader import check_metadata

_OWNED = "files"
"""The key of metadata.json with the model files that an earlier run wrote."""


def write_project(tree: SourceTree, directory: Path) -> None:
    """Write `tree`; raise UsageError if `directory` has other files or is not writable.

    Commands that write one directory at the same time wait for each other.
    """
    try:
        with _hold_directory(directory):
            _write_checked(tree, directory)
    except OSError as error:
        what = f"the project cannot be written: {error.strerror or error}."
        hint = "another directory."
        raise UsageError(what, where=str(directory), hint=hint) from error


@contextlib.contextmanager
def _hold_directory(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory.

    It is a file in the cache, since the directory holds the project alone.
    """
    locks = cache_root() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:32]
    lock = locks / f"{name}.lock"
    with hold_lock(lock):
        try:
            yield
        finally:
            # Windows does not remove a file that is open.
            with contextlib.suppress(OSError):
                lock.unlink()


def _write_checked(tree: SourceTree, directory: Path) -> None:
    earlier = _check(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for path in tree.files:
        _check_inside(directory, path)
    stale: list[Path] = []
    for path in sorted(earlier - set(tree.files)):
        if _is_stale(directory, path):
            stale.append(directory / path)
    tree.write(directory, stale)


def _check(directory: Path) -> set[str]:
    """Return an earlier project's model files; UsageError for a foreign folder."""
    if directory.exists() and not directory.is_dir():
        what = "it is not a directory."
        raise UsageError(what, where=str(directory), hint="another directory.")
    if not directory.exists() or holds_nothing(directory):
        return set()
    facts = _read_marker(directory / MARKER)
    if facts is None:
        found = "the directory is not empty and holds no firmwright project"
        hint = "an empty or new directory."
        raise UsageError(f"{found} (no {MARKER}).", where=str(directory), hint=hint)
    check_metadata(facts, str(directory / MARKER), ["schema", "model", _OWNED])
    return set(as_texts(facts.get(_OWNED, [])))


def _read_marker(marker: Path) -> JsonObject | None:
    """Return the object in a project's metadata.json; None for other programs'."""
    if not marker.is_file():
        return None
    try:
        facts = parse_json(read_input_text(marker))
    except ValueError:
        return None
    if not isinstance(facts, Mapping) or "schema" not in facts or "model" not in facts:
        return None
    return facts


def _check_inside(directory: Path, path: str) -> None:
    target = (directory / path).resolve()
    if not target.is_relative_to(directory.resolve()):
        what = f"{path} is a link that leaves the directory."
        raise UsageError(what, where=str(directory))


def _is_stale(directory: Path, path: str) -> bool:
    """Return whether a file that an earlier project's record names is to go."""
    is_own = path.startswith("model/") and ".." not in path.split("/")
    if not is_own or not (directory / path).is_file():
        return False
    _check_inside(directory, path)
    return True


def add_file_list(facts: JsonObject, tree: SourceTree) -> JsonObject:
    """Return `facts` for metadata.json with the model files.

    By them, a later run can remove stale ones.
    """
    own = [path for path in tree.files if path.startswith("model/")]
    return {**facts, _OWNED: sorted(own)}


def metadata_file(facts: JsonObject) -> SourceTree:
    """Return metadata.json with the facts of a project."""
    return SourceTree({MARKER: json.dumps(facts, indent=2, sort_keys=True) + "\n"})


def with_facts(tree: SourceTree, facts: JsonObject) -> SourceTree:
    """Return the tree with further facts in its metadata.json."""
    known = as_object(parse_json(str(tree.files[MARKER])))
    return SourceTree({**tree.files, **metadata_file({**known, **facts}).files})
