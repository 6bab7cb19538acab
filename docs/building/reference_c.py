"""The reference of the C interface, generated from the headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from markdown_pieces import fence, page
from pages import ROOT

import firmwright as fw

HEADERS: Final = (
    "runtime_c/fwr.h",
    "runtime_c/fwr_config.h",
    "runtime_c/port/fwr_port.h",
)
SECTION: Final = re.compile(
    r"^/\* ---- (.*?) -{2,}(.*?)\*/\n", re.DOTALL | re.MULTILINE
)
NOISE: Final = re.compile(r"^#(ifndef|define) \w+_H$\n|^#endif\n\Z", re.MULTILINE)


def c_page() -> str:
    """Return the interface of a model (the example's) and of the runtime."""
    compiled = fw.compile(
        fw.load(ROOT / "examples/01_digits/digits.tflite"), board="mps2-an386"
    )
    return page(
        "C interface",
        "the headers",
        "## A model",
        "This is the header of the bundled digits example on `mps2-an386`. Of another "
        "model the names, tensors and pools are others; what an option adds says the "
        "page about it.",
        *_header(str(compiled.tree.files["model/digits.h"])),
        *(part for name in HEADERS for part in _titled(name)),
    )


def _titled(name: str) -> Iterator[str]:
    yield f"## {name.rpartition('/')[2]}"
    yield from _header((ROOT / name).read_text(encoding="utf-8"))


def _header(text: str) -> Iterator[str]:
    """Return the introduction of a header, then its sections with headings."""
    said, _, rest = text.partition("*/\n")
    yield from _comment(said.removeprefix("/*").strip())
    pieces = SECTION.split(NOISE.sub("", rest))
    yield fence("c", pieces[0])
    for title, more, code in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        yield f"### {title}"
        yield from _comment(more.strip())
        if code.strip():
            yield fence("c", code)


def _comment(text: str) -> Iterator[str]:
    """Return a comment without its stars; indented text is preformatted."""
    plain = re.sub(r"^ \* ?", "", text, flags=re.MULTILINE).strip()
    if plain:
        yield fence("text", plain)
