"""The table of translators: operator without its overload, or with it where overloads differ."""

import importlib
import pkgutil
from functools import cache

import firmwright.frontends.pytorch.operators as package
from firmwright.base.errors import InternalError
from firmwright.frontends.pytorch.translation import Translator, Translators


@cache
def translators() -> Translators:
    table: dict[str, Translator] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, translator in getattr(module, "TRANSLATORS", {}).items():
            if name in table:
                raise InternalError(f"{name} is translated twice")
            table[name] = translator
    return table


def find_translator(target: str) -> Translator | None:
    """Return the translator of "aten.conv2d.default", of an in-place form too, or None."""
    parts = target.split(".")
    base = ".".join(parts[:2])
    if not base.endswith("__"):
        base = base.removesuffix("_")
    return translators().get(".".join((base, *parts[2:]))) or translators().get(base)
