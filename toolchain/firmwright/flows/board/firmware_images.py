"""Builds firmware images in a given folder or in the cache."""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from pathlib import Path

from firmwright.artifacts import Image, SourceTree, Variant
from firmwright.base.errors import DoesNotFitError, RegionOverflow
from firmwright.boards import Compiler
from firmwright.build import build_project
from firmwright.build.compiler_selection import choose_compiler
from firmwright.flows.board.build_cache import cached_folder, object_folder
from firmwright.package.project_writer import write_project
from firmwright.pipeline import Bundle, Compilation

log = logging.getLogger(__name__)


def build_image(
    compiled: Compilation | Bundle,
    variant: Variant = "release",
    directory: str | Path | None = None,
    *,
    compiler: Compiler | None = None,
    allow_stack: bool = False,
) -> Image:
    """Build one variant of a compilation or bundle in `directory` or in the cache.

    Raise DoesNotFitError if the image exceeds the board's memory.
    """
    _check_constants_fit(compiled)
    log.info("building the %s image for %s", variant, compiled.board.name)
    build = partial(
        build_project,
        variant=variant,
        compiler=compiler,
        objects=object_folder(),
        allow_stack=allow_stack,
    )
    if directory is not None:
        compiled.save(directory)
        return build(Path(directory))
    chosen = choose_compiler(compiler, default=compiled.board.compiler)
    project = compiled.project_to_run()
    with cached_folder(_key(project, chosen)) as folder:
        write_project(project, folder)
        return build(folder, is_own=True)


def _check_constants_fit(compiled: Compilation | Bundle) -> None:
    """Raise DoesNotFitError if constants alone exceed all memory of the board.

    A compiler would read their text for many minutes before a linker says so.
    """
    regions = compiled.board.memory
    if not isinstance(compiled, Compilation) or not regions:
        return
    constants = compiled.module.constants.values()
    needed = sum(constant.size_bytes for constant in constants)
    available = sum(region.size_bytes for region in regions)
    if needed > available:
        names = " and ".join(region.name for region in regions)
        raise DoesNotFitError(
            f"the constants of the model take {needed:,} bytes; the board's memory, "
            f"{names}, has {available:,}.",
            regions=[RegionOverflow(names, needed, available)],
            is_proven=True,
            where=compiled.board.name,
            hint="a board with more memory, or a smaller model.",
        )


def _key(project: SourceTree, compiler: Compiler) -> str:
    digest = hashlib.sha256()
    for path, data in project.encoded().items():
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:24] + ("" if compiler == "gcc" else f"-{compiler}")
