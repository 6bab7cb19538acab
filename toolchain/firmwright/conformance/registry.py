"""Lookup of conformance cases by operator.

The cases come from the tables `CASES` of all modules of this package.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

import firmwright.conformance as package
from firmwright.base.errors import InternalError
from firmwright.conformance.case import CaseTable, ConformanceCase


@cache
def case_table() -> CaseTable:
    """Return the case generators by operator name; InternalError on a duplicate."""
    table: dict[str, Callable[[], Iterator[ConformanceCase]]] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for op, cases in getattr(module, "CASES", {}).items():
            if op in table:
                raise InternalError(f"the cases of operator {op} are defined twice")
            table[op] = cases
    return table


def conformance_cases(op: str) -> Iterator[ConformanceCase]:
    cases = case_table().get(op)
    return iter(()) if cases is None else cases()
