"""The passes of this package by name, which importing all of its modules finds."""

from collections.abc import Mapping

from firmwright.base.package_modules import package_modules
from firmwright.ir.module import Pass
from firmwright.passes import graph, tir


def _passes_by_name() -> dict[str, Pass]:
    passes: dict[str, Pass] = {}
    for package in (graph, tir):
        for module in package_modules(package):
            if hasattr(module, "PASS"):
                passes[module.PASS.name] = module.PASS
    return passes


BY_NAME: Mapping[str, Pass] = _passes_by_name()
"""The passes that need only the module; `ir/pass_catalog.txt` gives their order."""
