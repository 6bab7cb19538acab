"""Stage the site as Markdown in one folder, for Sphinx.

    python docs/building/stage.py FOLDER

The folder receives the pages below docs/, pages elsewhere in the project and generated
pages, with adapted links, pictures, and copies of linked files. The output is
deterministic.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "toolchain")]

from navigation import lists  # noqa: E402 - the paths above are needed first
from pages import ROOT, copy_place, places, rewritten  # noqa: E402
from reference import GENERATED  # noqa: E402

DECISION_HEAD = "---\norphan: true\nno-search: true\n---\n\n"
"""Decisions are neither in the sidebar nor in the search; only links reach them."""


def stage(folder: Path) -> None:
    """Write the staged site; previous content of the folder is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    known, below, copies = places(), lists(), {"LICENSE"}
    texts = {
        place: (file, (ROOT / file).read_text(encoding="utf-8"))
        for file, place in known.items()
        if file.endswith(".md")
    }
    texts |= {place: (f"docs/{place}", made()) for place, made in GENERATED.items()}
    for place, (file, text) in texts.items():
        if not place.endswith(".md"):
            _write(folder / place, text.encode())
            continue
        page = rewritten(text, file, place, known)
        head = DECISION_HEAD if _is_decision(place) else ""
        copies |= page.copies
        _write(folder / place, (head + page.text + below.get(place, "")).encode())
    for path in sorted(copies):
        _write(folder / copy_place(path), (ROOT / path).read_bytes())


def _is_decision(place: str) -> bool:
    """Return whether a page is a decision, which only links reach."""
    return place.startswith("decisions/") and not place.endswith("/index.md")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
