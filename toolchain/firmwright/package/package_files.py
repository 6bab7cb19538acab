"""The files of a compilation in a package: models, their wrappers and backends.

Every format takes its files from `collect_package_files`, and every folder of a
compilation has a rule there, so that no format can omit a file.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from firmwright.artifacts import MARKER, SourceTree, read_gcc_flags
from firmwright.base.errors import InternalError, UsageError
from firmwright.base.source_paths import BUILD_FLAGS_FILE

_PACKAGED: Final = ("model", "tvm", "backend")
_NOT_PACKAGED: Final = ("firmware", MARKER)
"""The server's glue, and the record, for which every format has its own name."""
_FOREIGN_GCC_FLAGS: Final = ("-w",)
"""As in the project's build: a backend's C is not ours to keep free of warnings."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file at `path` in the compilation and `name` in the package's sources.

    Without `flags` it does not compile as its author intends; `gcc_flags` are for GCC
    alone, and concern speed and warnings. `is_public` headers declare what users call.
    """

    path: str
    name: str
    data: str | bytes
    flags: tuple[str, ...] = ()
    gcc_flags: tuple[str, ...] = ()
    is_public: bool = False

    @property
    def is_source(self) -> bool:
        return self.name.endswith(".c")

    @property
    def is_header(self) -> bool:
        return self.name.endswith(".h")

    @property
    def is_object(self) -> bool:
        """Whether a compiler made the file, which is only to be linked."""
        return self.name.endswith((".o", ".a"))

    @property
    def is_generated(self) -> bool:
        """Whether this is not a file of a backend."""
        return not self.path.startswith("backend/")

    @property
    def make_flags(self) -> str:
        """The required flags in a rule of a makefile."""
        return shlex.join(self.flags).replace("$", "$$")

    @property
    def cmake_flags(self) -> str:
        """The required flags in a quoted list of CMake."""
        return _cmake_list(self.flags)

    @property
    def cmake_gcc_flags(self) -> str:
        """The flags for GCC, required ones included, in a quoted list of CMake."""
        return _cmake_list((*self.flags, *self.gcc_flags))

    @property
    def text(self) -> str:
        """The contents of a text file."""
        if isinstance(self.data, str):
            return self.data
        return self.data.decode(errors="replace")


def collect_package_files(tree: SourceTree) -> tuple[PackageFile, ...]:
    """Return the files of a package in the order of their names.

    Raises:
        UsageError: two files have one name in the package's folder.
        InternalError: a folder of the compilation has no rule.
    """
    found: dict[str, PackageFile] = {}
    for file in _files(tree):
        other = found.setdefault(file.name, file)
        if other.data != file.data:
            pair = f"{other.path} and {file.path}"
            what = f"{pair} have one name in the package, {file.name}."
            hint = (
                "give the file of the backend or custom operator another name, or the "
                "model."
            )
            raise UsageError(what, where="export", hint=hint)
    return tuple(found[name] for name in sorted(found))


def _cmake_list(flags: Iterable[str]) -> str:
    """Return the flags as a list of CMake, with special characters escaped."""
    escaped = (re.sub(r'([\\"$;])', r"\\\1", flag) for flag in flags)
    return ";".join(escaped)


def _files(tree: SourceTree) -> Iterator[PackageFile]:
    """Yield the files that belong to a package, in the order of the compilation."""
    flags = _backend_flags(tree.files)
    weights = {path.removesuffix(".c") + "_weights.h" for path in tree.files}
    for path, data in tree.files.items():
        folder, *rest = PurePosixPath(path).parts
        if folder in _NOT_PACKAGED:
            continue
        if folder not in _PACKAGED:
            what = "no package format has a place for the file."
            raise InternalError(what, where=path)
        if folder != "backend":
            is_public = path.endswith(".h") and path not in weights
            yield _own_file(path, "/".join(rest), data, is_public=is_public)
            continue
        backend, *inner = rest
        if inner != [BUILD_FLAGS_FILE]:
            yield _backend_file(path, "/".join(inner), data, flags.get(backend, ()))


def _own_file(
    path: str, name: str, data: str | bytes, *, is_public: bool
) -> PackageFile:
    """Return a generated file, with the flags for GCC that its first comment names."""
    gcc_flags: tuple[str, ...] = ()
    if name.endswith(".c") and isinstance(data, str):
        gcc_flags = read_gcc_flags(data)
    return PackageFile(path, name, data, gcc_flags=gcc_flags, is_public=is_public)


def _backend_file(
    path: str, name: str, data: str | bytes, flags: tuple[str, ...]
) -> PackageFile:
    """Return a file of a backend; its C files have the backend's `flags`."""
    if not name.endswith(".c"):
        return PackageFile(path, name, data)
    return PackageFile(path, name, data, flags, _FOREIGN_GCC_FLAGS)


def _backend_flags(files: Mapping[str, str | bytes]) -> dict[str, tuple[str, ...]]:
    """Return the flags that backends declare for their C files, by backend."""
    flags: dict[str, tuple[str, ...]] = {}
    for path, data in files.items():
        if PurePosixPath(path).match(f"backend/*/{BUILD_FLAGS_FILE}"):
            backend = PurePosixPath(path).parts[1]
            flags[backend] = tuple(json.loads(data)["flags"])
    return flags
