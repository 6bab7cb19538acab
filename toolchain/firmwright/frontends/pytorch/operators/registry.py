"""The table of translators: operator without its overload, or with it where overloads differ."""

from functools import cache

import firmwright.frontends.pytorch.operators as package
from firmwright.base.package_modules import merge_tables
from firmwright.frontends.pytorch.translation import Translator, Translators


@cache
def translators() -> Translators:
    return merge_tables(package, "TRANSLATORS")


def find_translator(target: str) -> Translator | None:
    """Return the translator of "aten.conv2d.default", of an in-place form too, or None."""
    parts = target.split(".")
    base = ".".join(parts[:2])
    if not base.endswith("__"):
        base = base.removesuffix("_")
    return translators().get(".".join((base, *parts[2:]))) or translators().get(base)
