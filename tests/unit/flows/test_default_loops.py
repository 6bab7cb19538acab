"""Elementwise operators have schedules on every core: none is a default loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    conformance_cases,
)
from firmwright.flows.verify.census import _is_loop
from firmwright.flows.verify.operator_conformance import (
    NamedCase,
    cases_module,
    compile_cases,
)
from firmwright.ir.tir.traversal import prim_calls, statements

SHAPES = {
    "microbit": (1, 8, 8, 8),
    "mps2-an385": (1, 16, 16, 16),
    "mps2-an386": (1, 16, 16, 16),
    "mps3-an547": (1, 16, 16, 16),
}
"""The boards, and a shape that fits their memory."""
WIDE = {("squared_difference", "int16")}
"""Operators that take nearly all of their time for products of 64 bits on Armv6-M."""
OPS = {
    "int8": "add add_n equal greater less mul not_equal prelu relu relu6 squared_difference sub",
    "int16": "abs add equal leaky_relu mul relu squared_difference sub",
    "float32": "add ceil cos elu exp floor gelu log mul rsqrt sin sqrt sub tanh",
}


def grown(case: ConformanceCase, shape: tuple[int, ...]) -> ConformanceCase | None:
    """Return the case with tensors of `shape`, or None if its own differ in shape."""
    tensors = [each for each in (*case.inputs, *case.outputs) if each is not None]
    if len({each.shape for each in tensors}) > 1 or any(
        each.data is not None for each in tensors
    ):
        return None

    def large(tensor: CaseTensor | None) -> CaseTensor | None:
        return tensor and replace(tensor, shape=shape)

    outputs = tuple(replace(each, shape=shape) for each in case.outputs)
    return replace(case, inputs=tuple(map(large, case.inputs)), outputs=outputs)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("board", SHAPES)
@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for dtype, ops in OPS.items() for op in ops.split()]
)
def test_elementwise_operators_are_no_default_loops(
    op: str, dtype: str, board: str
) -> None:
    if board == "microbit" and (op, dtype) in WIDE:
        pytest.skip("its default loops are as fast as others")
    every = [grown(case, SHAPES[board]) for case in conformance_cases(op)]
    cases = filter(None, every)
    case = next(
        each for each in cases if each.inputs[0] and each.inputs[0].dtype == dtype
    )
    compiled = compile_cases(cases_module([NamedCase(op, case)]), board, {})
    schedules = {each.index: each.schedule for each in compiled.summary.operators}
    loops = [
        call.op
        for call in prim_calls(compiled.module.aot_main.body)
        if any(map(_is_loop, statements(compiled.module.kernel(call.callee).body)))
    ]
    assert "default" not in {schedules[index] for index in loops if index in schedules}
