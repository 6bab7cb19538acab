"""The operator table: the `OPDEF` or `OPDEFS` of every module of this package.

Modules are discovered, not listed; `registry.txt` has profiles, element types, limits and
inputs. A
duplicate operator is an error.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import firmwright.ops as package
from firmwright.base.errors import InternalError
from firmwright.base.package_modules import package_modules
from firmwright.base.text_sections import read_sections
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import DTYPES

_TYPE_GROUPS = {
    "any": tuple(kind.name for kind in DTYPES),
    "numbers": tuple(kind.name for kind in DTYPES if kind.name != "bool"),
}


def _read_facts() -> dict[str, dict[str, Any]]:
    """Return the fields of `OpDef` that registry.txt sets, by operator."""
    facts: dict[str, dict[str, Any]] = {}
    sections = read_sections(__file__, ".txt")
    for line in sections["operators"].splitlines():
        name, _, fields = line.partition(": ")
        numerics, types, *limits = (field.strip() for field in fields.split("|"))
        dtypes = _TYPE_GROUPS.get(types) or tuple(filter(None, types.split(", ")))
        facts[name] = {"numerics": numerics, "dtypes": dtypes, "restrictions": "".join(limits)}
    for line in sections["inputs"].splitlines():
        inputs, _, operators = line.partition(": ")
        names = () if inputs == "none" else tuple(inputs.split(", "))
        for name in operators.split():
            facts.setdefault(name, {})["inputs"] = names
    return facts


@cache
def op_table() -> Mapping[str, OpDef]:
    table: dict[str, OpDef] = {}
    facts = _read_facts()
    for module in package_modules(package):
        for op in getattr(module, "OPDEFS", ()) or filter(None, [getattr(module, "OPDEF", None)]):
            if op.name in table:
                raise InternalError(f"operator {op.name} is defined twice")
            table[op.name] = replace(op, **facts.pop(op.name, {}))
    if facts:
        raise InternalError(f"registry.txt lists unknown operators: {', '.join(facts)}")
    return table
