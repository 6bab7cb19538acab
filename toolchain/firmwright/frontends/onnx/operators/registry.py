"""The table of ONNX importers, collected from the `IMPORTERS` of this package's modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

import firmwright.frontends.onnx.operators as package
from firmwright.base.errors import InternalError
from firmwright.frontends.onnx.node_context import Importer


@cache
def onnx_importers() -> Mapping[str, Importer]:
    """Return importers by operator name, or DOMAIN:OPERATOR outside the standard domain."""
    table: dict[str, Importer] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, importer in getattr(module, "IMPORTERS", {}).items():
            if name in table:
                raise InternalError(f"ONNX's {name} is imported twice")
            table[name] = importer
    return table
