"""The toolchain's libraries in an image: versions, licenses and hashes."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.base.child_process import find_program, run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.boards.trust import MACHINE_FLAG
from firmwright.build.compiler_flags import LIBRARY_OPTIONS

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class License:
    """An SPDX expression, or the name of a collection of licenses with its address."""

    expression: str = ""
    name: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class LinkedLibrary:
    """A library that the toolchain links; version and SHA-256 are "" if not known."""

    name: str
    license: License
    version: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The compiler's version, "" if it is not installed, and the linked libraries."""

    version: str
    libraries: tuple[LinkedLibrary, ...]


@dataclass(frozen=True, slots=True)
class _CLibrary:
    name: str
    archive: str
    header: str
    version_macro: str
    license: License


_LIBGCC: Final = License("GPL-3.0-or-later WITH GCC-exception-3.1")
_NEWLIB: Final = _CLibrary(
    name="newlib-nano",
    archive="libc_nano.a",
    header="_newlib_version.h",
    version_macro="_NEWLIB_VERSION",
    license=License(
        name="collection of permissive licenses in COPYING.NEWLIB",
        url="https://sourceware.org/newlib/COPYING.NEWLIB",
    ),
)
_PICOLIBC: Final = _CLibrary(
    name="picolibc",
    archive="libc.a",
    header="picolibc.h",
    version_macro="__PICOLIBC_VERSION__",
    license=License(
        name="collection of permissive licenses in COPYING.picolibc",
        url="https://github.com/picolibc/picolibc/blob/main/COPYING.picolibc",
    ),
)
_C_LIBRARIES: Final[Mapping[str, _CLibrary]] = {
    "--specs=nano.specs": _NEWLIB,
    "--specs=picolibc.specs": _PICOLIBC,
}
_MACRO: Final = re.compile(r'^#define (\w+) "([\w.]+)', re.MULTILINE)


def find_toolchain(
    prefix: str,
    library_flags: Sequence[str],
    compile_flags: Sequence[str],
    built_by: str = "",
) -> Toolchain:
    """Return the libraries that the installed compiler with this prefix links.

    Versions are "" if that is not the one in `built_by`, the version line of the image.
    The flags come from a folder that may have been changed: only those that select a
    known C library or a machine reach a compiler, and only a known one.
    """
    known = [flag for flag in library_flags if flag in _C_LIBRARIES]
    if not known:
        return Toolchain("", ())
    library = _C_LIBRARIES[known[0]]
    unknown = Toolchain(
        "",
        (
            LinkedLibrary(library.name, library.license),
            LinkedLibrary("libgcc", _LIBGCC),
        ),
    )
    gcc = f"{prefix}-gcc"
    if prefix not in LIBRARY_OPTIONS or find_program(gcc) is None:
        return unknown
    machine = [
        flag for flag in compile_flags if re.fullmatch(MACHINE_FLAG, flag, re.ASCII)
    ]
    command = (gcc, *machine, known[0])
    macros = _macros(command, library.header)
    version = macros.get("__VERSION__", "")
    if not version or version not in (built_by or version):
        return unknown
    c_version = macros.get(library.version_macro, "")
    archives = [_archive_hash(command, name) for name in (library.archive, "libgcc.a")]
    return Toolchain(
        version,
        (
            LinkedLibrary(library.name, library.license, c_version, archives[0]),
            LinkedLibrary("libgcc", _LIBGCC, version, archives[1]),
        ),
    )


def _macros(command: Sequence[str], header: str) -> Mapping[str, str]:
    """Return the macros of the compiler and a header whose values are texts."""
    words = [*command, "-E", "-dM", "-include", header, "-x", "c", "-"]
    return dict(_MACRO.findall(_run(words)))


def _archive_hash(command: Sequence[str], name: str) -> str:
    """Return the SHA-256 of the archive that the linker finds, or ""."""
    path = Path(_run([*command, f"-print-file-name={name}"]).strip())
    if not path.is_absolute() or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(words: Sequence[str]) -> str:
    """Return what the compiler prints; "" if it fails."""
    try:
        status, printed = run_program(words, words[0], timeout_s=_TIMEOUT_S)
    except (ToolMissingError, ToolFailedError):
        return ""
    return "" if status else printed
