"""Immutable results of code generation and build: the sources, and the sized image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from firmwright.base.errors import InternalError
from firmwright.base.html_fragments import (
    CellValue,
    render_bar,
    render_properties,
    render_section,
    render_table,
)
from firmwright.base.source_paths import (
    is_backend_file,
    module_file_problem,
    path_problem,
)

Variant = Literal["release", "profile", "debug"]
"""`profile` adds a probe around each operator, `debug` also guards around pools."""
SectionKind = Literal["text", "rodata", "data", "bss", "noinit", "stack", "external"]


MARKER: Final = "metadata.json"
"""The file that makes a folder a project, and lists the project's files."""
_BUILD_FILES: Final = ("SConstruct", "CMakeLists.txt", "Makefile")


_GCC_FLAGS: Final = re.compile(r"^ \* gcc flags:((?: -f[a-z-]+)+)$", re.MULTILINE)
"""A line of a generated file's first comment."""


def read_gcc_flags(c_file: str) -> tuple[str, ...]:
    """Return the flags that the first comment of a generated C file names for GCC."""
    first_comment, _, _ = c_file.partition("*/")
    lines = _GCC_FLAGS.findall(first_comment)
    return tuple(flag for line in lines for flag in line.split())


@dataclass(frozen=True, slots=True)
class SourceTree:
    r"""Files by relative path with forward slashes; text is UTF-8 with \n."""

    files: Mapping[str, str | bytes]

    def __post_init__(self) -> None:
        for path in self.files:
            check = module_file_problem if is_backend_file(path) else path_problem
            if problem := check(path):
                raise InternalError(f"a file of a source tree {problem}.", where=path)
        in_order = MappingProxyType(dict(sorted(self.files.items())))
        object.__setattr__(self, "files", in_order)

    def encoded(self) -> dict[str, bytes]:
        """Return the bytes of each file by its path."""
        encoded: dict[str, bytes] = {}
        for path, content in self.files.items():
            if isinstance(content, str):
                content = content.encode("utf-8")
            encoded[path] = content
        return encoded

    def merged(self, other: SourceTree) -> SourceTree:
        twice = sorted(self.files.keys() & other.files.keys())
        if twice:
            raise InternalError("two trees have the same file.", where=twice[0])
        return SourceTree({**self.files, **other.files})

    def write(self, directory: Path, stale: Sequence[Path] = ()) -> None:
        """Write every file below `directory`, except unchanged ones; remove `stale`.

        Files are written under temporary names and replace earlier ones together, the
        marker first, so that a later call may complete them; in between, the folder has
        no build files, so a partial tree cannot be built.
        """
        staged: dict[Path, Path] = {}
        try:
            for path, data in self.encoded().items():
                file = directory / path
                if file.is_file() and file.read_bytes() == data:
                    continue
                file.parent.mkdir(parents=True, exist_ok=True)
                staged[file] = _staged(file)
                staged[file].unlink(missing_ok=True)
                staged[file].write_bytes(data)
            build_files = self._build_files(directory)
            for file in filter(Path.is_file, build_files if staged or stale else ()):
                if file in staged:
                    file.unlink()
                else:
                    staged[file] = file.replace(_staged(file))
            for file in stale:
                file.unlink()

            def rank(file: Path) -> tuple[bool, bool]:
                return file in build_files, file.name != MARKER

            for file in sorted(staged, key=rank):
                staged[file].replace(file)
        except BaseException:
            for file in staged.values():
                file.unlink(missing_ok=True)
            raise

    def _build_files(self, directory: Path) -> list[Path]:
        return [directory / name for name in _BUILD_FILES if name in self.files]


def _staged(file: Path) -> Path:
    return file.with_name(f".{file.name}.new")


def holds_nothing(directory: Path) -> bool:
    """Return whether `directory` has only temporary files of an interrupted `write`.

    That includes a directory without any files.
    """
    for path in directory.rglob("*"):
        is_staged = path.name.startswith(".") and path.name.endswith(".new")
        if not is_staged and (path.is_symlink() or not path.is_dir()):
            return False
    return True


def replace_file(file: Path, data: bytes) -> None:
    """Write a file at once or not at all, but devices directly.

    Other hard links of the file keep the earlier content.
    """
    target = file.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    staged = _staged(target)
    try:
        staged.unlink(missing_ok=True)
        staged.write_bytes(data)
        staged.replace(target)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class SectionSize:
    """One allocated section of an image."""

    name: str
    address: int
    size_bytes: int
    kind: SectionKind


@dataclass(frozen=True, slots=True)
class SymbolSize:
    """One function or object of an image and its section."""

    name: str
    address: int
    size_bytes: int
    section: str
    kind: SectionKind


@dataclass(frozen=True, slots=True)
class ImageRegionUsage:
    """The bytes that an image uses of a memory region, which has `size_bytes`."""

    name: str
    used_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """The sizes of an image: flash has text, rodata and initial data, RAM the rest."""

    sections: tuple[SectionSize, ...]
    symbols: tuple[SymbolSize, ...]
    regions: tuple[ImageRegionUsage, ...]

    def bytes_of(self, *kinds: SectionKind) -> int:
        return sum(s.size_bytes for s in self.sections if s.kind in kinds)

    @property
    def flash_bytes(self) -> int:
        return self.bytes_of("text", "rodata", "data")

    @property
    def ram_bytes(self) -> int:
        return self.bytes_of("data", "bss", "noinit", "stack")

    def largest(self, *kinds: SectionKind, count: int = 5) -> tuple[SymbolSize, ...]:
        chosen = [s for s in self.symbols if s.kind in kinds]
        return tuple(sorted(chosen, key=lambda s: (-s.size_bytes, s.name))[:count])


@dataclass(frozen=True, slots=True)
class PreloadedMemory:
    """A file besides the image that must be in memory when the firmware starts.

    Its first byte is at `address`.
    """

    file: Path
    address: int


class UnboundedReason(StrEnum):
    """Why the depth of a stack has no bound."""

    RECURSION = "recursion"
    VARIABLE_FRAME = "variable_frame"
    FUNCTION_POINTER = "function_pointer"


@dataclass(frozen=True, slots=True)
class UnboundedStack:
    """A reason and its functions: the cycle of a recursion, or the one that causes it.

    `is_definite` if the project's own code recurses or has the frame. Recursion of the
    C library is bounded by its authors, and the targets of a pointer are usually few.
    """

    reason: UnboundedReason
    cycle: tuple[str, ...]
    is_definite: bool = False

    def __str__(self) -> str:
        first = self.cycle[0]
        match self.reason:
            case UnboundedReason.RECURSION:
                chain = " calls ".join(self.cycle)
                return f"{first} calls itself" if len(set(self.cycle)) == 1 else chain
            case UnboundedReason.VARIABLE_FRAME:
                return (
                    f"{first} has a frame of variable size "
                    "(alloca, or a variable-length array)"
                )
        return f"{first} calls through a pointer whose targets are unknown"


@dataclass(frozen=True, slots=True)
class StackUsage:
    """A function's worst-case stack use and call path; `unknown` functions count as 0.

    If it is `unbounded`, the size is that of the calls whose depth is known.
    """

    root: str
    size_bytes: int
    path: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    unbounded: tuple[UnboundedStack, ...] = ()

    def __str__(self) -> str:
        return "unbounded" if self.unbounded else f"{self.size_bytes:,}"


@dataclass(frozen=True, slots=True)
class Image:
    """A linked firmware; on the host an executable that serves the link, and a library.

    `model_flash_bytes` and `model_ram_bytes` are the differences from the same firmware
    with an empty model. `stack` is the worst case of a model run, `firmware_stack` that
    of the firmware.
    """

    board: str
    variant: Variant
    directory: Path
    elf: Path
    bin: Path | None
    hex: Path | None
    library: Path | None
    sizes: ImageSizes
    model_flash_bytes: int
    model_ram_bytes: int
    stack: StackUsage
    firmware_stack: StackUsage

    @property
    def model_ram_with_stack_bytes(self) -> int:
        """The RAM of the model while it runs: its pools, data and stack."""
        return self.model_ram_bytes + self.stack.size_bytes

    def _repr_html_(self) -> str:
        sizes = self.sizes
        rows = (
            ("flash", sizes.flash_bytes, self.model_flash_bytes),
            ("RAM", sizes.ram_bytes, self.model_ram_bytes),
            ("stack, worst path", str(self.firmware_stack), str(self.stack)),
        )
        regions: list[Sequence[CellValue]] = []
        for region in sizes.regions:
            used, size = region.used_bytes, region.size_bytes
            regions.append((region.name, used, size, render_bar(used / max(size, 1))))
        return render_section(
            f"{self.variant} image for {self.board}",
            render_properties([("file", str(self.elf))]),
            render_table(("bytes", "firmware", "model's share"), rows),
            render_table(("region", "used", "size", "full"), regions),
        )

    @property
    def sizes_are_known(self) -> bool:
        """Whether the file format of the image is supported; if not, sizes are 0."""
        return bool(self.sizes.sections)

    @property
    def stack_is_known(self) -> bool:
        """Whether the toolchain reported stack frames; if not, paths are empty."""
        return self.firmware_stack.root not in self.firmware_stack.unknown
