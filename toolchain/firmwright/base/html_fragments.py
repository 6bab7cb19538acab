"""HTML fragments for notebooks without a style sheet; all but `Markup` is escaped."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol, cast

from markupsafe import Markup

from firmwright.base.display_names import format_shape
from firmwright.base.templates import template_environment, to_unicode

CellValue = str | int | float | None
ROWS_SHOWN = 60
"""Longer tables show this number of rows, and the number of the remaining ones."""


class _Macros(Protocol):
    """The macros of fragments.html.j2."""

    def section(self, title: str, parts: Sequence[str]) -> str: ...

    def properties(self, pairs: Iterable[tuple[str, CellValue]]) -> str: ...

    def table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[CellValue]],
        numeric: Sequence[bool],
        rows_shown: int,
    ) -> str: ...

    def bar(self, width: int) -> str: ...


@cache
def _macros() -> _Macros:
    environment = template_environment("firmwright.base", autoescape=True)
    return cast(_Macros, environment.get_template("fragments.html.j2").module)


def render_section(title: str, *parts: str) -> Markup:
    return Markup(_macros().section(title, parts))


def render_properties(pairs: Iterable[tuple[str, CellValue]]) -> Markup:
    """Return a table of names and values; pairs with the value None are omitted."""
    return Markup(_macros().properties(pairs))


def render_table(head: Sequence[str], rows: Sequence[Sequence[CellValue]]) -> Markup:
    """Return a table with right-aligned number columns, or "" if there are no rows."""
    if not rows:
        return Markup()
    numeric = [_is_numeric(rows, column) for column in range(len(head))]
    return Markup(_macros().table(head, rows, numeric, ROWS_SHOWN))


def _is_numeric(rows: Sequence[Sequence[CellValue]], column: int) -> bool:
    return any(isinstance(row[column], int | float) for row in rows)


def render_bar(share: float) -> Markup:
    """Return a horizontal bar; `share` is its length from 0 to 1 (120 pixels)."""
    return Markup(_macros().bar(round(120 * min(max(share, 0.0), 1.0))))


def render_notebook_item(package: str, template: str, **values: object) -> Markup:
    """Render a template of a package, which may use the fragments and `tensors`."""
    text = template_environment(package, autoescape=True).get_template(template)
    fragments = {"section": _macros().section, "properties": render_properties}
    rendered = text.render(
        **fragments, table=render_table, tensors=_format_tensors, **values
    )
    return Markup(to_unicode(rendered.strip()))


class _ShownTensor(Protocol):
    """An input or output in a notebook's table."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> object: ...

    @property
    def shape(self) -> Sequence[int]: ...


def _format_tensors(tensors: Iterable[_ShownTensor]) -> str:
    shown: list[str] = []
    for tensor in tensors:
        shown.append(f"{tensor.name}: {tensor.dtype} {format_shape(tensor.shape)}")
    return "; ".join(shown)
