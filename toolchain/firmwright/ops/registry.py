"""The operator table: the `OPDEF` or `OPDEFS` of every module of this package.

Modules are discovered, not listed. A duplicate operator or import name is an error.
"""

from collections.abc import Mapping
from functools import cache

import firmwright.ops as package
from firmwright.base.errors import InternalError
from firmwright.base.package_modules import package_modules
from firmwright.ir.graph.opdef import OpDef


@cache
def op_table() -> Mapping[str, OpDef]:
    table: dict[str, OpDef] = {}
    for module in package_modules(package):
        for op in getattr(module, "OPDEFS", ()) or filter(None, [getattr(module, "OPDEF", None)]):
            if op.name in table:
                raise InternalError(f"operator {op.name} is defined twice")
            table[op.name] = op
    return table


@cache
def import_table() -> Mapping[str, OpDef]:
    """Return the operators by foreign name, such as `tflite:CONV_2D`."""
    table: dict[str, OpDef] = {}
    for opdef in op_table().values():
        for name in opdef.imports:
            if name in table:
                raise InternalError(f"{name} is imported by {table[name].name} and {opdef.name}")
            table[name] = opdef
    return table
