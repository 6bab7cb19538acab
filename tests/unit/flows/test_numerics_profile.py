"""The profile of a .tflite model is tflm where LiteRT's kernels have no result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.conformance.case_tables import ConformanceCase, conformance_cases
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.pipeline.numerics_profile import choose_profile
from tests.ops.tflite_writer import write_cases


def imported(*cases: ConformanceCase) -> IRModule:
    data = write_cases(list(cases))
    return import_model(read_tflite(data, "case"), "case", data, op_table())


def case_of(op: str, kind: str) -> ConformanceCase:
    for case in conformance_cases(op):
        if case.outputs[0].dtype == kind:
            return case
    raise LookupError(op)


def test_sums_of_int8_are_those_of_tflm(caplog: pytest.LogCaptureFixture) -> None:
    module = imported(case_of("sum", "int8"), case_of("mean", "int8"))
    assert choose_profile(module, "litert") == "tflm"
    (record,) = caplog.records
    assert "SUM does not compute sums of int8" in record.getMessage()
    assert "node 0" in record.getMessage()


def test_cells_that_litert_leaves_out_are_those_of_tflm() -> None:
    case = next(c for c in conformance_cases("lstm") if c.name == "plain_int8")
    assert choose_profile(imported(case), "litert") == "litert"
    fine = imported_with_cells(case, 2.0**-16)
    assert choose_profile(fine, "litert") == "tflm"


def imported_with_cells(case: ConformanceCase, scale: float) -> IRModule:
    inputs = list(case.inputs)
    (place,) = [k for k, x in enumerate(inputs) if x and x.dtype == "int16"]
    cells = inputs[place]
    assert cells is not None
    inputs[place] = replace(cells, scales=(scale,))
    return imported(replace(case, inputs=tuple(inputs)))


def test_a_model_that_tflm_lacks_keeps_its_profile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hybrid = next(iter(conformance_cases("hybrid_fully_connected")))
    module = imported(case_of("sum", "int8"), hybrid)
    assert choose_profile(module, "litert") == "litert"
    assert not caplog.records


def test_a_profile_that_the_user_names_remains() -> None:
    assert choose_profile(imported(case_of("sum", "int8")), "tflm") == "tflm"
