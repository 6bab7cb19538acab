"""Texts in files next to the modules that use them.

C is in `MODULE.c.in`, tables are in `MODULE.txt`.

A section begins with the line `---- NAME`, which is a comment in C.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from textwrap import indent

_HEAD = re.compile(r"^(?:/\* )?---- (\w+)(?: \*/)?\n", re.MULTILINE)


def read_sections(module: str, suffix: str = ".c.in") -> dict[str, str]:
    """Return the sections of the file of a module (`__file__`) by name."""
    text = Path(module).with_suffix(suffix).read_text(encoding="utf-8")
    _, *parts = _HEAD.split(text)
    sections: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        sections[name] = body.rstrip("\n")
    return sections


def fill_text(text: str, **values: object) -> str:
    """Replace the words that begin with a dollar sign."""
    return Template(text).substitute(values)


def insert_sections(sections: Mapping[str, str], name: str, kind: str = "") -> str:
    """Return the section `name` with its lines `$PART` replaced by sections.

    Such a line becomes the section PART or PART_kind.
    """

    def part(line: re.Match[str]) -> str:
        return indent(sections[line[2] + kind], line[1])

    return re.sub(r"^( *)\$(\w+)$", part, sections[name], flags=re.MULTILINE)
