"""Pages and pictures generated for the site.

`GENERATED` maps each location to the function that writes its text; links are relative
to `docs/<place>`. The output is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchmarks import benchmarks_page, charts
from markdown_pieces import page
from pages import SourcePage, decision_pages, example_pages
from reference_boards import board_keys_page
from reference_c import c_page
from reference_cli import commands_page
from reference_python import python_page


def decisions_list() -> str:
    """Return the list of decisions by number."""
    return page(
        "Decisions",
        "the titles of the pages below `docs/decisions`",
        "Each page has the context, the choice, and what was rejected.",
        _links(decision_pages()),
    )


def examples_list() -> str:
    """Return the list of examples in order."""
    return page("Examples", "the titles of the examples", _links(example_pages()))


def _links(pages: Sequence[SourcePage]) -> str:
    return "\n".join(f"- [{page.title}](../../{page.file})" for page in pages)


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "reference/cli.md": commands_page,
    "reference/python.md": python_page,
    "reference/c.md": c_page,
    "reference/board-keys.md": board_keys_page,
    "benchmarks.md": benchmarks_page,
    **{chart.place: chart.svg for chart in charts()},
    "decisions/index.md": decisions_list,
    "examples/index.md": examples_list,
}
