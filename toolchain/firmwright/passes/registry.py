"""The passes of this package by name, which importing all of its modules finds."""

from collections.abc import Mapping

from firmwright.base.package_modules import package_modules
from firmwright.ir.module import Pass
from firmwright.passes import graph, tir

_MODULES = [module for package in (graph, tir) for module in package_modules(package)]
BY_NAME: Mapping[str, Pass] = {
    module.PASS.name: module.PASS for module in _MODULES if hasattr(module, "PASS")
}
"""The passes that need only the module; `ir/pass_catalog.txt` gives their order."""
