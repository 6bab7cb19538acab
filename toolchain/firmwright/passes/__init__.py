"""Passes `IRModule -> IRModule`, one per file; they share the nodes they do not change.

A pass that changes nothing returns the module itself.

The table is made when it is first used, since other packages need single modules of
this one.
"""

from typing import TYPE_CHECKING

from firmwright.base.package_modules import export_on_use

if TYPE_CHECKING:
    from firmwright.passes.registry import BY_NAME as BY_NAME

__getattr__ = export_on_use(__name__, {"registry": ["BY_NAME"]})
