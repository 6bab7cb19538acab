"""From a compilation to a linked image, in a folder of the user's or in a cache.

In: a `Compilation`. Out: an `Image`. The cache's folders are named by the hash of everything in the
project, so two processes that want the same image share one: a lock lets one build at a time, and
the other finds the work done. The least recently used folders are removed when there are many.
Beside them the cache has single objects: of the runtime most are the same in every project.
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
from firmwright.base.platform_compat import lock_file, user_tag
from firmwright.build import build_project
from firmwright.build.compiler_selection import choose_compiler
from firmwright.pipeline import Bundle, Compilation

log = logging.getLogger(__name__)
MAX_CACHED_BUILDS = 64
MAX_OBJECT_AGE_S = 7 * 24 * 3600
"""Objects are compiled again after that time: so the folder does not grow for ever."""
MIN_CACHED_AGE_S = 24 * 3600
"""A folder used within this time is never removed: somebody may be running from it."""


def build_image(
    compiled: Compilation | Bundle,
    variant: Variant = "release",
    directory: str | Path | None = None,
    *,
    compiler: Compiler | None = None,
) -> Image:
    """Build one variant of a compilation or bundle in `directory`, or in the cache.

    Raises ToolMissingError, ToolFailedError, DoesNotFitError.
    """
    log.info("building the %s image for %s", variant, compiled.board.name)
    if directory is not None:
        compiled.save(directory)
        return build_project(Path(directory), variant, compiler=compiler, objects=_objects())
    with _cached_folder(compiled.project(), choose_compiler(compiler)) as folder:
        compiled.save(folder)
        return build_project(folder, variant, compiler=compiler, objects=_objects())


def build_tree(project: SourceTree, *, compiler: Compiler | None = None) -> Image:
    """Build the release of a whole project, in the cache. Raises as `build_image`."""
    with _cached_folder(project, choose_compiler(compiler)) as folder:
        project.write(folder)
        return build_project(folder, compiler=compiler, objects=_objects())


def cache_root() -> Path:
    """The folder for built images: FIRMWRIGHT_CACHE, the user's cache, else a temporary one."""
    named = os.environ.get("FIRMWRIGHT_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = Path(home) / "firmwright"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError as error:
        log.debug("no cache in %s: %s", root, error)
    return Path(tempfile.gettempdir()) / f"firmwright-{user_tag()}"


def _objects() -> Path:
    """SCons makes the folder, with its settings in it: so two builds may both be the first."""
    root = cache_root() / "objects"
    root.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if root.is_dir():
        remove_old_objects(root)
    return root


def remove_old_objects(root: Path) -> None:
    """Those that SCons put there longer ago than OBJECTS_AGE_S."""
    oldest_kept = time.time() - MAX_OBJECT_AGE_S
    for folder in root.iterdir():  # one for each beginning of a signature
        for file in folder.iterdir() if folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another process removes them too
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
    for path, content in project.files.items():
        data = content.encode() if isinstance(content, str) else content
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:24]


@contextlib.contextmanager
def _lock(root: Path, name: str, *, wait: bool = True) -> Iterator[bool]:
    """Whether the lock was had; with `wait`, always. It ends with the process at the latest."""
    with open(root / f"{name}.lock", "w", encoding="utf-8", newline="\n") as file:
        yield lock_file(file, wait=wait)


def _remove_oldest(root: Path) -> None:
    folders = [entry for entry in root.iterdir() if entry.is_dir()]
    if len(folders) <= MAX_CACHED_BUILDS:
        return
    oldest_kept = time.time() - MIN_CACHED_AGE_S
    by_use = sorted((folder.stat().st_mtime, folder) for folder in folders)
    for used, folder in by_use[: len(folders) - MAX_CACHED_BUILDS]:
        if used >= oldest_kept:
            return
        with _lock(root, folder.name, wait=False) as had:
            if had:
                shutil.rmtree(folder, ignore_errors=True)
                (root / f"{folder.name}.lock").unlink(missing_ok=True)
