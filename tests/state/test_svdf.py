"""The state of SVDF layers: updated in place, over many runs."""

from __future__ import annotations

import pytest

from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import load_module_bytes
from tests.ops.tflite_writer import write_cases

RUNS = 40
"""The state has the values of six runs."""


@pytest.mark.host_c
@pytest.mark.parametrize("name", ["narrow_int8", "two_int8"])
def test_state_is_updated_in_place_and_equals_tflm_in_every_run(name: str) -> None:
    (case,) = (each for each in conformance_cases("svdf") if each.name == name)
    data = write_cases([case])
    model = Model(load_module_bytes(data, "svdf.tflite"), data)
    compiled = compile_for(model, "host", numerics="tflm")
    assert compiled.module.plan is not None
    kinds = [buffer.kind for buffer in compiled.module.plan.buffers]
    assert kinds.count("state") == 1
    assert "activation" not in kinds
    verification = verify(compiled, samples=RUNS)
    assert verification.exact
