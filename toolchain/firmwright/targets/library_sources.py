"""The files of a C library that some functions of it need.

In: the library's folder, the names that are called. Out: by name, the sources that define those
functions and, in turn, what they call, and the headers that those include. A file is found by the
functions and tables that it defines: text that looks like one at the beginning of a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DEFINITION = re.compile(r"^[A-Za-z_][\w \t\*\n]*?\b(\w+)\s*\([^;{}()]*\)\s*\{", re.MULTILINE)
_TABLE = re.compile(r"^(?!static)[A-Za-z_][\w \t\*]*?\b(\w+)\s*\[[^\]]*\]\s*=\s*\{", re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def collect_needed_files(
    root: Path, include_folders: Sequence[str], source_folder: str, symbols: frozenset[str]
) -> Mapping[str, bytes]:
    """Sources by their file's name, headers by the name that they are included by."""
    texts = {
        path: _COMMENT.sub("", path.read_text(encoding="utf-8", errors="replace"))
        for path in sorted((root / source_folder).rglob("*.c"))
    }
    homes = {name: path for path, text in texts.items() for name in _defined(text)}
    tables = {name: path for path, text in texts.items() for name in _TABLE.findall(text)}
    homes |= tables
    headers = _headers(root, include_folders)
    found: dict[str, bytes] = {}
    queue = sorted(symbols)
    seen = set(queue)
    while queue:
        home = homes.get(queue.pop())
        if home is None or home.name in found:
            continue
        found[home.name] = home.read_bytes()
        names, included = _asked_for(texts[home], headers)
        names |= tables.keys() & set(_WORD.findall(texts[home]))
        found |= included
        new = sorted(names - seen)
        seen.update(new)
        queue += new
    return dict(sorted(found.items()))


def _defined(text: str) -> list[str]:
    """Functions that other files can call."""
    found = _DEFINITION.finditer(text)
    return [match[1] for match in found if "static" not in match[0].partition("(")[0].lower()]


def _headers(root: Path, folders: Sequence[str]) -> dict[str, Path]:
    return {
        path.relative_to(root / folder).as_posix(): path
        for folder in folders
        for path in sorted((root / folder).rglob("*.h"))
    }


def _asked_for(text: str, headers: Mapping[str, Path]) -> tuple[set[str], dict[str, bytes]]:
    """What a source calls, and the headers that it includes, directly or not."""
    names = set(_CALLED.findall(text))
    found: dict[str, bytes] = {}
    queue = _INCLUDE.findall(text)
    while queue:
        name = queue.pop()
        path = headers.get(name)
        if path is None or name in found:
            continue
        found[name] = path.read_bytes()
        inner = _COMMENT.sub("", found[name].decode("utf-8", errors="replace"))
        queue += _INCLUDE.findall(inner)
    return names, found
