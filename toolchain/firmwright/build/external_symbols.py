"""Check that only one file of backends defines an external symbol."""

import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from firmwright.base.errors import PluginError
from firmwright.build.elf_reader import external_definitions
from firmwright.targets.library_sources import defined_symbols

_ARCHIVE = b"!<arch>\n"
_MEMBER_HEADER_BYTES = 60
_MEMBER_SIZE = slice(48, 58)


def check_external_symbols(files: Mapping[str, bytes], generated: Collection[str]) -> None:
    """Raise PluginError if generated files and libraries, one per folder, share a symbol."""
    first: dict[str, tuple[str, str, bytes]] = {}
    for path in sorted(files):
        owner = path if path in generated else str(PurePosixPath(path).parent)
        for symbol, code in _definitions(path, files[path]):
            other_owner, other_path, other = first.setdefault(symbol, (owner, path, code))
            if owner != other_owner and code != other:
                raise PluginError(
                    f"{other_path} and {path} both define the function {symbol}, so one of the "
                    "two would be called in place of the other.",
                    hint="a symbol per region, such as `kernel.symbol`; or static functions.",
                )


def _definitions(path: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the symbols that a file defines, each with the code that must be the same."""
    if path.endswith(".c"):
        text = data.decode("utf-8", errors="replace")
        yield from ((name, path.encode()) for name in defined_symbols(text))
        return
    try:
        if path.endswith(".o"):
            yield from ((name, path.encode()) for name in external_definitions(data))
        elif data.startswith(_ARCHIVE):
            for member in _members(data):
                yield from ((name, member) for name in external_definitions(member))
    except (struct.error, ValueError, IndexError) as error:
        raise PluginError("the object file is not complete.", where=path) from error


def _members(data: bytes) -> Iterator[bytes]:
    at = len(_ARCHIVE)
    while at + _MEMBER_HEADER_BYTES <= len(data):
        start = at + _MEMBER_HEADER_BYTES
        size = int(data[at:start][_MEMBER_SIZE])
        yield data[start : start + size]
        at = start + size + size % 2
