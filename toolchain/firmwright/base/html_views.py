"""HTML views of values in notebooks, registered by type (`html_view.register`).

A module above this package registers them.

The module is imported at the first view, so that programs without a notebook do not
load it.
"""

import html
from functools import singledispatch
from importlib import import_module

_providers: set[str] = set()
"""Modules that register views."""


def provide_views(module: str) -> None:
    """Announce a module that registers views when it is imported."""
    _providers.add(module)


@singledispatch
def html_view(value: object) -> str:
    """Return the view of a value, by default its representation."""
    return f"<pre>{html.escape(repr(value))}</pre>"


def show_html(value: object) -> str:
    """Return the HTML of a value; the `_repr_html_` of values calls it."""
    while _providers:
        import_module(_providers.pop())
    return html_view(value)
