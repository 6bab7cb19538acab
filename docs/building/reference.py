"""Which pages and pictures are made while the site is built, and by whom.

`GENERATED` names each one's place and the function that writes its text; links of pages are as they
hold from `docs/<place>`. None takes longer than a second; the same tree gives the same text.
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
    """All decisions, by number."""
    return page(
        "Decisions",
        "the titles of the pages below `docs/decisions`",
        "Each page has the context, the choice, and what was rejected.",
        _links(decision_pages()),
    )


def examples_list() -> str:
    """All examples, in their order."""
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
