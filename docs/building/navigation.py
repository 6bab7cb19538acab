"""The navigation of the site.

The sidebar leads a user through twelve pages. Other pages are below one of them; those
that no list names are the last ones below the reference. Decisions are listed on their
own page only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pages import example_pages, inside_pages

GUIDE: Final = (
    "start.md",
    "models.md",
    "fit.md",
    "firmware.md",
    "smaller-faster.md",
    "accuracy.md",
    "audio.md",
    "debug.md",
    "ship.md",
    "boards.md",
    "accelerators.md",
    "reference/README.md",
)
"""The pages of the sidebar, in the order in which a user needs them."""
BELOW: Final[Mapping[str, tuple[str, ...]]] = {
    "start.md": ("examples/index.md",),
    "fit.md": ("zoo.md",),
    "audio.md": ("reference/sensors.md",),
    "smaller-faster.md": ("reference/report.md", "reference/tuning.md"),
    "ship.md": (
        "safety.md",
        "reference/proof-bundles.md",
        "reference/hardening.md",
        "reference/qualification.md",
        "reference/mcuboot.md",
        "reference/misra.md",
    ),
    "boards.md": (
        "reference/boards.md",
        "reference/board-runs.md",
        "reference/board-keys.md",
        "evidence/README.md",
    ),
    "accelerators.md": (
        "reference/adding-an-accelerator.md",
        "reference/ethos-u.md",
        "reference/devices.md",
    ),
    "reference/README.md": (
        "reference/cli.md",
        "reference/operators.md",
        "reference/fwir.md",
        "reference/tir.md",
        "reference/passes.md",
        "reference/python.md",
        "reference/c.md",
        "reference/runtime.md",
        "reference/abi.md",
        "reference/runtime-design.md",
        "reference/link.md",
        "reference/numerics.md",
        "reference/onnx.md",
        "reference/bounded-axes.md",
        "reference/pytorch.md",
        "reference/state.md",
        "reference/custom-operators.md",
        "reference/isolation.md",
        "reference/compilers.md",
        "reference/instructions-and-cycles.md",
        "benchmarks.md",
        "reference/mlperf.md",
        "reference/agents.md",
        "reference/coming-from.md",
        "reference/microtvm.md",
        "reference/side-by-side.md",
        "reference/glossary.md",
        "reference/stability.md",
        "reference/changelog.md",
        "decisions/index.md",
        "developing/README.md",
    ),
    "developing/README.md": (
        "developing/contributing.md",
        "developing/architecture.md",
        "developing/extensions.md",
        "developing/adding-an-operator.md",
        "developing/adding-a-pass.md",
        "developing/project-api.md",
        "developing/predictions.md",
        "developing/figures-by-release.md",
        "developing/releasing.md",
        "developing/security.md",
        "developing/code-of-conduct.md",
    ),
}
"""The pages below a page of the sidebar, or below one of these."""


def lists() -> dict[str, str]:
    """Return the navigation lists to append to each parent page, by page."""
    examples = tuple(page.place for page in example_pages())
    below = {**BELOW, "examples/index.md": examples}
    below["reference/README.md"] += _unnamed()
    return {"index.md": _toctree(GUIDE)} | {
        page: _toctree(pages) for page, pages in below.items()
    }


def _unnamed() -> tuple[str, ...]:
    """Return the pages that no list names."""
    named = {page for pages in (GUIDE, *BELOW.values()) for page in pages}
    found = {
        page.place for page in inside_pages() if not page.place.startswith("decisions/")
    }
    return tuple(sorted(found - named))


def _toctree(pages: tuple[str, ...]) -> str:
    """Return a toctree for the sidebar."""
    entries = "\n".join(f"/{page.removesuffix('.md')}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
