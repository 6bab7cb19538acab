"""The matrix operator x element type of a self test."""

from __future__ import annotations

import pytest

from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.verify.operator_conformance import (
    CaseResult,
    OperatorTestResult,
    build_matrix,
    dtype_of,
)
from firmwright.oracle.compare import Difference


def _tested(*results: CaseResult) -> OperatorTestResult:
    return OperatorTestResult("host", "litert", 4, 1, results, ())


def test_matrix_counts_cases_and_marks_missing_ones() -> None:
    differs = Difference(0, "y", (0,), 1, 2)
    found = build_matrix(
        _tested(
            CaseResult("add", "a", None, "ADD", "int8"),
            CaseResult("add", "b", differs, "ADD", "int8"),
            CaseResult("gather", "a", None, "GATHER", "int8"),
        )
    )
    cells = {(cell.operator, cell.dtype): cell for cell in found}
    assert (cells["ADD", "int8"].cases, cells["ADD", "int8"].passed) == (2, 1)
    assert cells["ADD", "int8"].status == "failed"
    assert cells["GATHER", "int8"].status == "passed"
    assert cells["GATHER", "int16"].status == "untested"
    assert cells["PRELU", "int16"].status == "unsupported"
    assert ("ATAN2", "int8") not in cells


@pytest.mark.parametrize(
    ("op", "case", "dtype"),
    [
        ("equal", "same_int8", "int8"),  # not its result's
        ("dynamic_gather", "rows_float32", "float32"),  # not its indices'
        ("select", "spread_int16", "int16"),  # not its condition's
        ("arg_min_max", "arg_max_last_int8", "int8"),
        ("logical_not", "bool", "bool"),
    ],
)
def test_dtype_of_a_case_is_that_of_its_data(op: str, case: str, dtype: str) -> None:
    (found,) = [item for item in conformance_cases(op) if item.name == case]
    assert dtype_of(found) == dtype
