"""Check that only one file of backends defines an external symbol."""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from firmwright.base.errors import PluginError
from firmwright.build.elf_reader import external_definitions
from firmwright.targets.library_sources import defined_symbols

_ARCHIVE = b"!<arch>\n"
"""The first bytes of an archive of object files; members with headers follow."""
_MEMBER_HEADER_BYTES = 60
_MEMBER_SIZE = slice(48, 58)
"""The place of a member's size in its header, as decimal digits."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """A symbol's first definition: the region or library, the file, and the code."""

    owner: str
    path: str
    code: bytes


def check_external_symbols(
    files: Mapping[str, bytes], generated: Collection[str]
) -> None:
    """Raise PluginError if generated files and libraries share a symbol.

    Each folder is one library.
    """
    first: dict[str, _Definition] = {}
    for path in sorted(files):
        owner = path if path in generated else str(PurePosixPath(path).parent)
        for symbol, code in _definitions(path, files[path]):
            other = first.setdefault(symbol, _Definition(owner, path, code))
            if owner != other.owner and code != other.code:
                found = f"{other.path} and {path} both define the function {symbol}"
                effect = "so one of the two would be called in place of the other"
                hint = (
                    "a symbol per region, such as `kernel.symbol`; or static functions."
                )
                raise PluginError(f"{found}, {effect}.", hint=hint)


def _definitions(path: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the symbols that a file defines, each with the code that must be the same.

    Members of archives may be the same code, as two libraries may contain one; other
    files are equal only to themselves, so that their path represents their code.
    """
    own_code = path.encode()
    if path.endswith(".c"):
        text = data.decode("utf-8", errors="replace")
        for name in defined_symbols(text):
            yield name, own_code
        return
    try:
        if path.endswith(".o"):
            for name in external_definitions(data):
                yield name, own_code
        elif data.startswith(_ARCHIVE):
            for member in _members(data):
                for name in external_definitions(member):
                    yield name, member
    except (struct.error, ValueError, IndexError) as error:
        raise PluginError("the object file is not complete.", where=path) from error


def _members(data: bytes) -> Iterator[bytes]:
    """Yield the members of an archive, which start at even offsets."""
    at = len(_ARCHIVE)
    while at + _MEMBER_HEADER_BYTES <= len(data):
        start = at + _MEMBER_HEADER_BYTES
        size = int(data[at:start][_MEMBER_SIZE])
        yield data[start : start + size]
        at = start + size + size % 2
