"""The pages of the site, and the conversion of their links.

Links in the project's Markdown are relative paths. A link to a page becomes a link
within the site; a link to another file refers to a copy below `source/`. Paths are
relative to the project, with slashes.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
OUTSIDE: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "developing/contributing.md",
    "CODE_OF_CONDUCT.md": "developing/code-of-conduct.md",
    "CHANGELOG.md": "reference/changelog.md",
    "SECURITY.md": "developing/security.md",
    "LICENSE": "source/LICENSE.txt",
    "boards/README.md": "reference/boards.md",
    "runtime_c/README.md": "reference/runtime.md",
    "runtime_c/ABI.md": "reference/abi.md",
    "runtime_c/DESIGN.md": "reference/runtime-design.md",
}
"""Pages that lie beside what they are about, and their places in the site."""
FOLDERS: Final[Mapping[str, str]] = {
    "examples": "examples/index.md",
    "docs/decisions": "decisions/index.md",
    "docs/reference": "reference/README.md",
    "docs/developing": "developing/README.md",
    "runtime_c": "reference/runtime.md",
    "boards": "reference/boards.md",
}
"""What a link to a folder means."""
LINK: Final = re.compile(r"(?<!\\)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LANGUAGES: Final[Mapping[str, str]] = {
    "sh": "sh",
    "py": "python",
    "python": "python",
    "c": "c",
    "toml": "toml",
    "ini": "ini",
}
"""What a fence's first word means to the highlighter; every other is plain text."""


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A Markdown file of the project and its location in the site."""

    file: str
    place: str

    @property
    def text(self) -> str:
        return (ROOT / self.file).read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")


def example_pages() -> tuple[SourcePage, ...]:
    """Return the pages of the examples in order."""
    found = sorted((ROOT / "examples").glob("*/README.md"))
    return tuple(
        SourcePage(
            f"examples/{page.parent.name}/README.md", f"examples/{page.parent.name}.md"
        )
        for page in found
    )


def decision_pages() -> tuple[SourcePage, ...]:
    """Return the decisions by number."""
    found = sorted((ROOT / "docs/decisions").glob("*.md"))
    return tuple(
        SourcePage(f"docs/decisions/{page.name}", f"decisions/{page.name}")
        for page in found
    )


def inside_pages() -> tuple[SourcePage, ...]:
    """Return the pages in docs/ by name, without the skills, which agents read."""
    docs = ROOT / "docs"
    found: list[str] = []
    for page in sorted(docs.rglob("*.md")):
        if not page.is_relative_to(docs / "skills"):
            found.append(page.relative_to(ROOT).as_posix())
    return tuple(SourcePage(page, page.removeprefix("docs/")) for page in found)


def outside_pages() -> tuple[SourcePage, ...]:
    """Return the pages outside docs/."""
    named = (
        SourcePage(file, place)
        for file, place in OUTSIDE.items()
        if file.endswith(".md")
    )
    return (*named, *example_pages())


def places() -> dict[str, str]:
    """Map each file and folder that a link may name to its location in the site."""
    pages = {page.file: page.place for page in (*inside_pages(), *outside_pages())}
    folders = {posixpath.dirname(page.file): page.place for page in example_pages()}
    return {**pages, **OUTSIDE, **folders, **FOLDERS}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A page of the site, and the files to copy for it."""

    text: str
    copies: frozenset[str]


def rewritten(text: str, file: str, place: str, known: Mapping[str, str]) -> Rewritten:
    """Convert the page at `file` for its `place`: adapt links and code blocks."""
    copies: set[str] = set()

    def link(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        if path not in known and (ROOT / path).is_file():
            copies.add(path)
        if path not in known and path not in copies:
            return found[0]  # within the site, or broken: Sphinx reports it
        there = known.get(path, copy_place(path))
        start = posixpath.dirname(place) or "."
        return f"]({posixpath.relpath(there, start)}{anchor})"

    parts, done = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[done : fence.start()]), _highlighted(fence)]
        done = fence.end()
    parts.append(LINK.sub(link, text[done:]))
    return Rewritten("".join(parts), frozenset(copies))


def _highlighted(fence: re.Match[str]) -> str:
    """Return the code block with its language only, captioned with the quoted file."""
    first, *rest = fence[1].split() or [""]
    language = LANGUAGES.get(first, "text")
    file = next((word for word in rest if (ROOT / word).is_file()), "")
    if first.startswith("{"):
        return fence[0]
    if file:
        return f"```{{code-block}} {language}\n:caption: {file}\n\n{fence[2]}```"
    return f"```{language}\n{fence[2]}```"


def copy_place(path: str) -> str:
    """Return where a copied file is; files that a browser displays keep their name."""
    shown = os.path.splitext(path)[1] in {".svg", ".png", ".html", ".json"}
    return f"source/{path}" if shown else f"source/{path}.txt"
