"""Lookup of conformance cases by operator.

The cases come from the tables `CASES` of all modules of this package.
"""

from collections.abc import Iterator
from functools import cache

import firmwright.conformance as package
from firmwright.base.package_modules import merge_tables
from firmwright.conformance.case import CaseTable, ConformanceCase


@cache
def case_table() -> CaseTable:
    """Return the case generators by operator name; InternalError on a duplicate."""
    return merge_tables(package, "CASES")


def conformance_cases(op: str) -> Iterator[ConformanceCase]:
    cases = case_table().get(op)
    return iter(()) if cases is None else cases()
