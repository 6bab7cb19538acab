"""Every operator on every conformance case, from the importer to the generated C.

The oracle of each profile equals the numpy reference, which equals the default lowering
in the TIR interpreter and the generated C: bit for bit for integers, within
docs/reference/numerics.md for floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.conformance.case_tables import ConformanceCase, conformance_cases
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.lower.lowering import make_op_call
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule
from firmwright.schedules.scalar import unrolled_loops
from tests.ops.float_bounds import float_bound
from tests.ops.generated_c import run_in_c
from tests.ops.state_samples import StateInput, find_state, run_samples
from tests.ops.tflite_writer import write_cases

Array = NDArray[np.generic]
PROFILES: tuple[NumericsProfile, ...] = ("litert", "tflm")

every_case = pytest.mark.parametrize(
    ("op", "case"),
    [
        pytest.param(name, case, id=f"{name}-{case.name}")
        for name, opdef in op_table().items()
        for case in conformance_cases(opdef.name)
    ],
)


def _alike_in_both(opdef: OpDef) -> bool:
    return opdef.numerics == "both"


in_both_only_where_they_differ = pytest.mark.parametrize(
    ("op", "case", "numerics"),
    [
        pytest.param(
            name,
            case,
            numerics,
            id=f"{name}-{case.name}-{numerics}",
            marks=[pytest.mark.deep]
            if numerics == "tflm" and _alike_in_both(opdef)
            else [],
        )
        for name, opdef in op_table().items()
        for case in conformance_cases(opdef.name)
        for numerics in PROFILES
        if numerics in opdef.profiles
    ],
)
in_every_profile = pytest.mark.parametrize(
    ("op", "case", "numerics"),
    [
        pytest.param(name, case, numerics, id=f"{name}-{case.name}-{numerics}")
        for name, opdef in op_table().items()
        for case in conformance_cases(opdef.name)
        for numerics in PROFILES
        if numerics in opdef.profiles
    ],
)


def call_of(
    case: ConformanceCase, numerics: NumericsProfile
) -> tuple[OpCall, list[StateInput]]:
    """Import the case from a TFLite file and return the call and its state."""
    data = write_cases([case])
    module = import_model(read_tflite(data, case.name), "case", data, op_table())
    main = module.entry
    assert isinstance(main, Function)
    assert len(main.body) == 1
    return make_op_call(main.body[0], module.with_numerics(numerics)), find_state(
        module
    )


def assert_agrees(
    call: OpCall,
    arrays: Sequence[Array],
    got: Sequence[Array],
    expected: Sequence[Array],
) -> None:
    """Compare integers bit for bit and floats within the float bound."""
    assert [a.shape for a in got] == [kind.shape for kind in call.outputs[: len(got)]]
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if ours.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
            continue
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        ours, theirs = np.where(same, 0, ours), np.where(same, 0, theirs)
        distance = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        excess = distance - float_bound(call, arrays, theirs)
        assert excess.max() <= 0.0, (
            f"{distance.max()} off, {excess.max()} more than allowed"
        )


def interpreted(
    call: OpCall, lower: Callable[[OpCall, Kernel], None] | None = None
) -> Callable[[Sequence[Array]], list[Array]]:
    """Return a function that runs a lowering of `call` on its variable inputs."""
    kernel = Kernel("kernel", call)
    (lower or op_table()[call.op].lower)(call, kernel)
    func = kernel.build(op=call.op)
    interpreter = Interpreter({func.name: func}, BASE_INTRINSICS, kernel.constants)
    inputs = [param.name for param in func.params if param.role == "in"]
    outputs = [param.name for param in func.params if param.role == "out"]

    def run(variable: Sequence[Array]) -> list[Array]:
        arguments = dict(zip(inputs, variable, strict=True))
        results = [np.zeros(kind.shape, kind.dtype.np) for kind in call.outputs]
        interpreter.run(
            func.name, {**arguments, **dict(zip(outputs, results, strict=True))}
        )
        return results

    return run


def variable_arrays(call: OpCall, arrays: Sequence[Array]) -> list[Array]:
    """Return the arrays of the inputs that are not constant."""
    present = [index for index, kind in enumerate(call.inputs) if kind is not None]
    return [a for i, a in zip(present, arrays, strict=True) if call.constant(i) is None]


def number_of_inputs(names: tuple[str, ...]) -> tuple[float, float]:
    """Return the least and greatest number of inputs with these names on the page."""
    least = most = 0.0
    for name in names:
        count = re.search(r"\((\d+)\)$", name)
        most += math.inf if name.endswith("...") else int(count[1]) if count else 1
        least += 0 if name.endswith("?") else int(count[1]) if count else 1
    return least, most


@every_case
def test_inferred_types_equal_those_of_the_reference(
    op: str, case: ConformanceCase, draw: Callable[[ConformanceCase], list[list[Array]]]
) -> None:
    call, state = call_of(case, "litert")
    assert call.op == op
    least, most = number_of_inputs(op_table()[op].inputs)
    assert least <= len(call.inputs) <= most
    inferred = op_table()[op].infer(call)
    _, outputs = next(run_samples(call, state, draw(case)))
    assert [kind.shape for kind in inferred] == [array.shape for array in outputs]
    assert [kind.dtype.np for kind in inferred] == [array.dtype for array in outputs]
    visible = inferred[: len(case.outputs)]
    assert [kind.shape for kind in visible] == [tensor.shape for tensor in case.outputs]


@in_every_profile
def test_reference_equals_the_oracle(
    op: str,
    case: ConformanceCase,
    numerics: NumericsProfile,
    ask: Callable[[str, str, NumericsProfile], object],
    draw: Callable[[ConformanceCase], list[list[Array]]],
) -> None:
    if numerics not in case.oracles:
        pytest.skip(f"the runtime of {numerics} has no {case.builtin} as in this case")
    answers = ask(op, case.name, numerics)
    assert not answers.refusal, answers.refusal
    call, state = call_of(case, numerics)
    computed = run_samples(call, state, draw(case))
    for (arrays, results), expected in zip(computed, answers.outputs, strict=True):
        assert_agrees(call, arrays, results[: len(expected)], expected)


@pytest.mark.sampled(2)
@in_both_only_where_they_differ
def test_default_lowering_equals_the_reference(
    op: str,
    case: ConformanceCase,
    numerics: NumericsProfile,
    draw: Callable[[ConformanceCase], list[list[Array]]],
    deep: bool,
) -> None:
    call, state = call_of(case, numerics)
    run = interpreted(call)
    samples = draw(case) if deep else draw(case)[1:4]  # both extremes and one at random
    for arrays, results in run_samples(call, state, samples):
        assert_agrees(call, arrays, run(variable_arrays(call, arrays)), results)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "schedule", unrolled_loops.SCHEDULES, ids=lambda schedule: schedule.op
)
def test_unrolled_loops_equal_the_default_ones(
    schedule: Schedule, draw: Callable[[ConformanceCase], list[list[Array]]], deep: bool
) -> None:
    for case in islice(conformance_cases(schedule.op), None if deep else 2):
        call, state = call_of(case, "litert")
        runs = (
            interpreted(call),
            interpreted(call, lambda op, b: schedule.build(op, NO_CONFIG, b)),
        )
        for arrays, _ in run_samples(call, state, draw(case)[3:4]):
            expected, got = (run(variable_arrays(call, arrays)) for run in runs)
            for theirs, ours in zip(expected, got, strict=True):
                np.testing.assert_array_equal(ours, theirs)


CASES_A_PROGRAM = 40


def _programs() -> list[object]:
    """Return parameters: a profile and the cases of one program.

    Cases that both profiles define alike are compiled for the second profile only with
    --deep.
    """
    found: list[object] = []
    for numerics, is_deep in (("litert", False), ("tflm", False), ("tflm", True)):
        cases = [
            (name, case)
            for name, opdef in op_table().items()
            for case in conformance_cases(opdef.name)
            if numerics in opdef.profiles
            and (numerics == "litert" or is_deep is _alike_in_both(opdef))
        ]
        for start in range(0, len(cases), CASES_A_PROGRAM):
            some = cases[start : start + CASES_A_PROGRAM]
            first, last = some[0], some[-1]
            title = f"{numerics}-{first[0]}-to-{last[0]}-{start}{'-deep' if is_deep else ''}"
            marks = [pytest.mark.deep] if is_deep else []
            found.append(pytest.param(numerics, some, id=title, marks=marks))
    return found


@pytest.mark.sampled(6)
@pytest.mark.host_c
@pytest.mark.parametrize(("numerics", "cases"), _programs())
def test_generated_c_equals_the_reference(
    numerics: NumericsProfile,
    cases: Sequence[tuple[str, ConformanceCase]],
    draw: Callable[[ConformanceCase], list[list[Array]]],
    tmp_path: Path,
) -> None:
    drawn = [draw(case) for _, case in cases]
    samples = [
        [array for row in drawn for array in row[k]] for k in range(len(drawn[0]))
    ]
    results = run_in_c([case for _, case in cases], samples, numerics, tmp_path)
    outputs = [iter(row) for row in results]
    for (op, case), rows in zip(cases, drawn, strict=True):
        call, state = call_of(case, numerics)
        for number, (arrays, expected) in enumerate(run_samples(call, state, rows)):
            got = [next(outputs[number]) for _ in case.outputs]
            try:
                assert_agrees(call, arrays, got, expected[: len(got)])
            except AssertionError as error:
                raise AssertionError(
                    f"{op}, case {case.name}, sample {number}"
                ) from error
