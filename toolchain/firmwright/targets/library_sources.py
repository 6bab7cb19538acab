"""The user's copy of a C library, and the files that a set of functions needs.

Definitions are found by text: lines that look like a function or table definition.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from firmwright.base.errors import UsageError

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DEFINITION = re.compile(
    r"^[A-Za-z_][\w \t\*\n]*?\b(\w+)\s*\([^;{}()]*\)\s*\{", re.MULTILINE
)
_TABLE = re.compile(
    r"^(?!static)[A-Za-z_][\w \t\*]*?\b(\w+)\s*\[[^\]]*\]\s*=\s*\{", re.MULTILINE
)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def find_library(backend: str, variable: str, header: str) -> Path:
    """Return the folder that `variable` names; UsageError unless it has `header`."""
    named = os.environ.get(variable, "")
    path = Path(named)
    if not named or not (path / header).is_file():
        library = f"a copy of the library that contains {header}"
        what = f"the backend {backend} needs {library}."
        hint = f"--{backend} PATH or the variable {variable}."
        raise UsageError(what, where=str(path) if named else "", hint=hint)
    return path


def collect_needed_files(
    root: Path,
    include_folders: Sequence[str],
    source_folder: str,
    symbols: frozenset[str],
) -> Mapping[str, bytes]:
    """Return the sources of `symbols` and of everything they call, and their headers.

    Keys are file names for sources and include paths for headers.
    """
    texts: dict[Path, str] = {}
    definitions: dict[str, Path] = {}
    tables: dict[str, Path] = {}
    for path in sorted((root / source_folder).rglob("*.c")):
        source_text = path.read_text(encoding="utf-8", errors="replace")
        texts[path] = _COMMENT.sub("", source_text)
        definitions |= dict.fromkeys(_defined(texts[path]), path)
        tables |= dict.fromkeys(_TABLE.findall(texts[path]), path)
    definitions |= tables
    headers: dict[str, Path] = {}
    for folder in include_folders:
        for path in sorted((root / folder).rglob("*.h")):
            headers[path.relative_to(root / folder).as_posix()] = path
    files: dict[str, bytes] = {}
    queue = sorted(symbols)
    seen = set(queue)
    while queue:
        source = definitions.get(queue.pop())
        if source is None or source.name in files:
            continue
        files[source.name] = source.read_bytes()
        names, included = _asked_for(texts[source], headers)
        names |= tables.keys() & set(_WORD.findall(texts[source]))
        files |= included
        new = sorted(names - seen)
        seen.update(new)
        queue += new
    return dict(sorted(files.items()))


def defined_symbols(source: str) -> set[str]:
    """Return the functions and tables that a C source defines with external linkage."""
    text = _COMMENT.sub("", source)
    return {*_defined(text), *_TABLE.findall(text)}


def _defined(text: str) -> list[str]:
    names = []
    for match in _DEFINITION.finditer(text):
        if "static" not in match[0].partition("(")[0].lower():
            names.append(match[1])
    return names


def _asked_for(
    text: str, headers: Mapping[str, Path]
) -> tuple[set[str], dict[str, bytes]]:
    """Return the functions of other files that a source calls, and all its headers."""
    names = set(_CALLED.findall(text)) - set(_DEFINITION.findall(text))
    included: dict[str, bytes] = {}
    queue = _INCLUDE.findall(text)
    while queue:
        name = queue.pop()
        path = headers.get(name)
        if path is None or name in included:
            continue
        included[name] = path.read_bytes()
        inner = _COMMENT.sub("", included[name].decode("utf-8", errors="replace"))
        queue += _INCLUDE.findall(inner)
    return names, included
