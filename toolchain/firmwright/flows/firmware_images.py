"""Builds firmware images in a given folder or in the cache."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from firmwright.artifacts import Compiler, Image, SourceTree, Variant
from firmwright.build import build_project
from firmwright.build.compiler_selection import choose_compiler
from firmwright.flows.build_cache import cached_folder, object_folder
from firmwright.pipeline import Bundle, Compilation

log = logging.getLogger(__name__)


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
        return build_project(Path(directory), variant, compiler=compiler, objects=object_folder())
    with cached_folder(_key(compiled.project(), compiler)) as folder:
        compiled.save(folder)
        return build_project(folder, variant, compiler=compiler, objects=object_folder())


def _key(project: SourceTree, compiler: Compiler | None) -> str:
    chosen = choose_compiler(compiler)
    digest = hashlib.sha256()
    for path, data in project.encoded().items():
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:24] + ("" if chosen == "gcc" else f"-{chosen}")
