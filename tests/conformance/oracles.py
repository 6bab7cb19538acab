"""What the reference runtimes say of layers: the expected results of every kernel.

In: cases whose names end in their numbers. Out: for each profile, sample and layer the result, and
of floats how far from it another one may lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drawn_data import SAMPLES, drawn
from float_bounds import float_bound
from kept_state import full_inputs
from kernels import imported
from tflite_writer import input_names, output_names, write_cases

from firmwright.conformance.case import ConformanceCase
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.opdef import Array, NumericsProfile
from firmwright.oracle.reference_runner import run_reference

CASES_A_MODEL = 32
"""TFLM's planner takes time with the cube of the operators."""


def number(case: ConformanceCase) -> int:
    """The number that a layer was drawn with."""
    return int(case.name.rsplit("_", 1)[-1])


def inputs(case: ConformanceCase, sample: int) -> list[Array]:
    """The variable inputs of a layer."""
    variable = [each for each in case.inputs if each is not None and each.data is None]
    return [
        drawn(number(case), place, sample, each.shape, each.dtype)
        for place, each in enumerate(variable)
    ]


@dataclass(frozen=True)
class Expected:
    """Results by (profile, layer, sample); of floats bounds by (layer, sample)."""

    results: dict[tuple[NumericsProfile, int, int], Array] = field(default_factory=dict)
    bounds: dict[tuple[int, int], Array] = field(default_factory=dict)

    def of(self, profiles: frozenset[NumericsProfile], layer: int, sample: int) -> list[Array]:
        return [self.results[profile, layer, sample] for profile in sorted(profiles)]


def ask(
    cases: Sequence[ConformanceCase],
    profiles: Sequence[NumericsProfile],
    samples: Sequence[int] = range(SAMPLES),
) -> Expected:
    """Ask the runtime of each profile."""
    expected = Expected()
    for profile in profiles:
        known = [place for place, case in enumerate(cases) if profile in case.oracles]
        for start in range(0, len(known), CASES_A_MODEL):
            places = known[start : start + CASES_A_MODEL]
            some = [cases[place] for place in places]
            given = [
                {
                    name: array
                    for place, case in enumerate(some)
                    for name, array in zip(
                        input_names(place, case), inputs(case, sample), strict=True
                    )
                }
                for sample in samples
            ]
            found = run_reference(write_cases(some), given, profile).outputs
            for sample, outputs in zip(samples, found, strict=True):
                for position, case in enumerate(some):
                    (name,) = output_names(position, case)
                    expected.results[profile, places[position], sample] = outputs[name]
    _find_bounds(cases, samples, expected)
    return expected


def of_floats(cases: Sequence[ConformanceCase]) -> list[int]:
    """The places of the layers whose results are floats."""
    return [place for place, case in enumerate(cases) if case.outputs[0].dtype == "float32"]


def _find_bounds(
    cases: Sequence[ConformanceCase], samples: Sequence[int], expected: Expected
) -> None:
    places = of_floats(cases)
    if not places:
        return
    module = imported([cases[place] for place in places], "litert")
    assert isinstance(module.entry, Function)
    for place, call in zip(places, module.entry.body, strict=True):
        described = make_op_call(call, module)
        for sample in samples:
            arrays = full_inputs(described, inputs(cases[place], sample), {})
            result = expected.results[cases[place].oracles[0], place, sample]
            expected.bounds[place, sample] = float_bound(described, arrays, result)
