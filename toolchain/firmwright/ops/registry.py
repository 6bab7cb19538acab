"""The operator table: `OPDEF` or `OPDEFS` of all modules here and of extensions.

The modules of this package are discovered, not listed, and `registry.txt` has profiles,
element types, limits, inputs and results of their operators. A duplicate operator is an
error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import TypedDict, get_args

import firmwright.ops as package
from firmwright.base.errors import InternalError
from firmwright.base.extensions import defined_twice, door_modules
from firmwright.base.package_modules import package_modules
from firmwright.base.text_sections import read_sections
from firmwright.ops.opdef import DefinedIn, OpDef
from firmwright.ops.strided_copy import DTYPES

_ANY = tuple(kind.name for kind in DTYPES if not kind.computed_as)
_TYPE_GROUPS = {"any": _ANY, "numbers": tuple(name for name in _ANY if name != "bool")}


class _OperatorFacts(TypedDict, total=False):
    """The fields of `OpDef` that registry.txt sets."""

    numerics: DefinedIn
    dtypes: tuple[str, ...]
    restrictions: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]


_NUMERICS: dict[str, DefinedIn] = {name: name for name in get_args(DefinedIn)}


def _read_facts() -> dict[str, _OperatorFacts]:
    """Return the fields of `OpDef` that registry.txt sets, by operator."""
    facts: dict[str, _OperatorFacts] = {}
    sections = read_sections(__file__, ".txt")
    for line in sections["operators"].splitlines():
        name, _, fields = line.partition(": ")
        numerics, types, *limits = (field.strip() for field in fields.split("|"))
        dtypes = _TYPE_GROUPS.get(types) or tuple(filter(None, types.split(", ")))
        facts[name] = {
            "numerics": _NUMERICS[numerics],
            "dtypes": dtypes,
            "restrictions": "".join(limits),
        }
    for names, operators in _read_names(sections["inputs"]):
        for name in operators:
            facts.setdefault(name, {})["inputs"] = names
    for names, operators in _read_names(sections["results"]):
        for name in operators:
            facts.setdefault(name, {})["results"] = names
    return facts


def _read_names(section: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the names of inputs or results, with the operators that have them."""
    for line in section.splitlines():
        names, _, operators = line.partition(": ")
        yield () if names == "none" else tuple(names.split(", ")), operators.split()


def _operators(module: ModuleType) -> tuple[OpDef, ...]:
    several = tuple(getattr(module, "OPDEFS", ()))
    return several or tuple(filter(None, [getattr(module, "OPDEF", None)]))


@cache
def op_table() -> Mapping[str, OpDef]:
    """Return the operators by name, those of extensions last.

    Raises PluginError if an operator is defined twice.
    """
    table: dict[str, OpDef] = {}
    origins: dict[str, ModuleType] = {}
    facts = _read_facts()
    added = door_modules(lambda extension: extension.operators)
    for module in (*package_modules(package), *added):
        for op in _operators(module):
            if op.name in table:
                raise defined_twice(f"the operator {op.name}", origins[op.name], module)
            added_facts = facts.pop(op.name, {})
            table[op.name] = replace(op, module=module.__name__, **added_facts)
            origins[op.name] = module
    if facts:
        raise InternalError(f"registry.txt lists unknown operators: {', '.join(facts)}")
    return table
