"""Builds firmware images in a given folder or in a cache.

Cache folders are named by the project's hash and locked during a build; the least recently used are
removed. Object files are cached separately, since projects share most of the runtime.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from firmwright.artifacts import Compiler, Image, SourceTree, Variant
from firmwright.base.platform_compat import current_user_tag, lock_file
from firmwright.build import build_project
from firmwright.build.compiler_selection import choose_compiler
from firmwright.pipeline import Bundle, Compilation

log = logging.getLogger(__name__)
MAX_CACHED_BUILDS = 64
MAX_OBJECT_AGE_S = 7 * 24 * 3600
"""Older objects are compiled again, so that the folder does not grow without bound."""
MIN_CACHED_AGE_S = 24 * 3600
"""A folder used within this time is never removed, since it may be in use."""


def build_image(
    compiled: Compilation | Bundle,
    variant: Variant = "release",
    directory: str | Path | None = None,
    *,
    compiler: Compiler | None = None,
) -> Image:
    """Build one variant of a compilation or bundle in `directory` or in the cache.

    Raise ToolMissingError, ToolFailedError or DoesNotFitError.
    """
    log.info("building the %s image for %s", variant, compiled.board.name)
    if directory is not None:
        compiled.save(directory)
        return build_project(Path(directory), variant, compiler=compiler, objects=_objects())
    with _cached_folder(compiled.project(), choose_compiler(compiler)) as folder:
        compiled.save(folder)
        return build_project(folder, variant, compiler=compiler, objects=_objects())


def build_tree(project: SourceTree, *, compiler: Compiler | None = None) -> Image:
    """Build the release image of a project in the cache; raise the same errors as `build_image`."""
    with _cached_folder(project, choose_compiler(compiler)) as folder:
        project.write(folder)
        return build_project(folder, compiler=compiler, objects=_objects())


def cache_root() -> Path:
    """Return the cache folder: FIRMWRIGHT_CACHE, the user's cache, or a temporary folder."""
    override = os.environ.get("FIRMWRIGHT_CACHE")
    if override:
        return Path(override)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = Path(home) / "firmwright"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError as error:
        log.debug("no cache in %s: %s", root, error)
    return Path(tempfile.gettempdir()) / f"firmwright-{current_user_tag()}"


def _objects() -> Path:
    """Return the folder of the object cache, which SCons creates; remove old objects from it."""
    root = cache_root() / "objects"
    root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if root.is_dir():
        remove_old_objects(root)
    return root


def remove_old_objects(root: Path) -> None:
    oldest_kept = time.time() - MAX_OBJECT_AGE_S
    for folder in root.iterdir():  # one folder for each prefix of signatures
        for file in folder.iterdir() if folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another process may remove it first
                if file.stat().st_mtime < oldest_kept:
                    file.unlink()


@contextlib.contextmanager
def _cached_folder(project: SourceTree, compiler: Compiler) -> Iterator[Path]:
    root = cache_root() / "builds"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = root / (_key(project) + ("" if compiler == "gcc" else f"-{compiler}"))
    with _lock(root, folder.name):
        folder.mkdir(exist_ok=True)
        os.utime(folder)
        yield folder
    _remove_oldest(root)


def _key(project: SourceTree) -> str:
    digest = hashlib.sha256()
    for path, data in project.encoded().items():
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:24]


@contextlib.contextmanager
def _lock(root: Path, name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock and yield whether it was acquired; with `wait` it always is."""
    with open(root / f"{name}.lock", "w", encoding="utf-8", newline="\n") as file:
        yield lock_file(file, wait=wait)


def _remove_oldest(root: Path) -> None:
    folders = [entry for entry in root.iterdir() if entry.is_dir()]
    if len(folders) <= MAX_CACHED_BUILDS:
        return
    oldest_kept = time.time() - MIN_CACHED_AGE_S
    by_use = sorted((folder.stat().st_mtime, folder) for folder in folders)
    for last_use, folder in by_use[: len(folders) - MAX_CACHED_BUILDS]:
        if last_use >= oldest_kept:
            return
        with _lock(root, folder.name, wait=False) as acquired:
            if acquired:
                shutil.rmtree(folder, ignore_errors=True)
                (root / f"{folder.name}.lock").unlink(missing_ok=True)
