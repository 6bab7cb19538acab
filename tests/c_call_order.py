"""Which C files of a folder call which others."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path


def calls_between_files(
    folder: Path, prefixes: str, ignored: Collection[str] = ()
) -> dict[str, set[str]]:
    """Return, for each C file, the other files whose functions it calls.

    Functions are those with one of the `prefixes`, a regular expression, and an
    underscore. Calls of the `ignored` ones do not count.
    """
    call = re.compile(rf"\b((?:{prefixes})_[a-z0-9_]+)\(")
    definition = re.compile(
        rf"^\w[\w *]*?\b((?:{prefixes})_[a-z0-9_]+)\([^;]*?\)\n\{{", re.MULTILINE
    )
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.c")}
    home: dict[str, str] = {}
    for file, text in texts.items():
        home.update(dict.fromkeys(definition.findall(text), file))
    calls: dict[str, set[str]] = {}
    for file, text in texts.items():
        called = {name for name in call.findall(text) if name in home}
        calls[file] = {home[name] for name in called - set(ignored)} - {file}
    return calls
