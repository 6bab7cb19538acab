"""A schedule that does not fit a layer offers nothing; it never rejects the layer."""

from __future__ import annotations

import pytest

from firmwright.conformance.case_tables import case_table, conformance_cases
from firmwright.flows.verify.operator_conformance import NamedCase, cases_module
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.schedules.registry import SCHEDULES


@pytest.mark.parametrize(
    "op", sorted({item.op for item in SCHEDULES} & case_table().keys())
)
def test_every_schedule_considers_every_layer_of_its_operator(op: str) -> None:
    module = cases_module([NamedCase(op, case) for case in conformance_cases(op)])
    calls = [make_op_call(call, module) for call in module.functions["main"].body]
    layers = [call for call in calls if call.op == op]
    assert layers
    for schedule in (item for item in SCHEDULES if item.op == op):
        for call in layers:
            schedule.configs(call)
