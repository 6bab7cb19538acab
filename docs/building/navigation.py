"""The navigation of the site.

Pages that no section names are in the last section, by name. Decisions are listed on
their own page only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pages import example_pages, inside_pages

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Beginning": ("installing.md", "tutorial.md"),
    "Guides: the right numbers": (
        "quantise-well.md",
        "when-outputs-differ.md",
        "onnx.md",
        "state.md",
        "evaluate.md",
        "census.md",
    ),
    "Guides: smaller and faster": (
        "report.md",
        "less-ram-flash-time.md",
        "tuning.md",
        "two-models.md",
        "devices.md",
    ),
    "Guides: in a product": (
        "streaming-audio.md",
        "rtos.md",
        "on-the-device.md",
        "mcuboot.md",
        "integration/README.md",
        "house-rules.md",
        "provenance.md",
        "mlperf.md",
    ),
    "Guides: growing it": (
        "extensions.md",
        "adding-a-board.md",
        "adding-an-operator.md",
        "adding-a-pass.md",
        "custom-operators.md",
        "adding-an-accelerator.md",
        "cmsis-nn.md",
        "ethos-u.md",
        "project-api.md",
    ),
    "Guides: coming and staying": (
        "coming-from.md",
        "contributing.md",
        "code-of-conduct.md",
        "releasing.md",
        "security.md",
    ),
    "Examples": ("examples/index.md",),
    "Reference": (
        "reference/cli.md",
        "reference/python.md",
        "reference/c.md",
        "operators.md",
        "reference/board-keys.md",
        "reference/boards.md",
        "reference/runtime.md",
        "reference/abi.md",
        "reference/runtime-design.md",
        "changelog.md",
    ),
    "Explanations": (
        "glossary.md",
        "architecture.md",
        "numerics.md",
        "instructions-and-cycles.md",
        "predictions.md",
        "compilers.md",
        "misra.md",
        "benchmarks.md",
        "figures-by-release.md",
        "decisions/index.md",
    ),
}
INTEGRATION: Final = (
    "integration/cmake.md",
    "integration/makefile.md",
    "integration/arduino.md",
    "integration/platformio.md",
    "integration/zephyr.md",
    "integration/esp-idf.md",
    "integration/cmsis-pack.md",
    "integration/mlf.md",
)


def lists() -> dict[str, str]:
    """Return the navigation lists to append to each parent page, by page."""
    examples = [page.place for page in example_pages()]
    sections = {**SECTIONS, "Further pages": _unnamed()}
    return {
        "index.md": "".join(
            _toctree(pages, title) for title, pages in sections.items() if pages
        ),
        "integration/README.md": _toctree(INTEGRATION),
        "examples/index.md": _toctree(examples),
    }


def _unnamed() -> tuple[str, ...]:
    """Return the pages that no section names."""
    named = {page for pages in (*SECTIONS.values(), INTEGRATION) for page in pages}
    found = {
        page.place for page in inside_pages() if not page.place.startswith("decisions/")
    }
    return tuple(sorted(found - named))


def _toctree(pages: tuple[str, ...] | list[str], title: str = "") -> str:
    """Return a toctree for the sidebar."""
    caption = f":caption: '{title}'\n" if title else ""
    entries = "\n".join(f"/{page.removesuffix('.md')}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n"
