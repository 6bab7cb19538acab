"""Texts in files next to the modules that use them: `MODULE.c.in` for C, `MODULE.txt` for tables.

A section begins with the line `---- NAME`, which is a comment in C.
"""

import re
from pathlib import Path
from string import Template

_HEAD = re.compile(r"^(?:/\* )?---- (\w+)(?: \*/)?\n", re.MULTILINE)


def read_sections(module: str, suffix: str = ".c.in") -> dict[str, str]:
    """Return the sections of the file of a module (`__file__`) by name."""
    _, *parts = _HEAD.split(Path(module).with_suffix(suffix).read_text(encoding="utf-8"))
    return {name: body.rstrip("\n") for name, body in zip(parts[::2], parts[1::2], strict=True)}


def fill_text(text: str, **values: object) -> str:
    """Replace the words that begin with a dollar sign."""
    return Template(text).substitute(values)
