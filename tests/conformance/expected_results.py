"""Expected results of layers by the reference runtimes, and bounds of float errors.

Case names end in the layer's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from firmwright.base.dtypes import Array
from firmwright.conformance.case_tables import ConformanceCase
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.ir.settings import NumericsProfile
from firmwright.oracle.reference_runner import run_reference
from tests.conformance.kernel_batches import import_cases
from tests.conformance.random_inputs import SAMPLES, drawn
from tests.ops.float_bounds import float_bound
from tests.ops.state_samples import full_inputs
from tests.ops.tflite_writer import input_names, output_names, write_cases

CASES_A_MODEL = 32
"""TFLM's planner takes cubic time in the number of operators."""


def number(case: ConformanceCase) -> int:
    """Return the random seed number of a layer."""
    return int(case.name.rsplit("_", 1)[-1])


def inputs(case: ConformanceCase, sample: int) -> list[Array]:
    """Return the variable inputs of a layer."""
    variable = [each for each in case.inputs if each is not None and each.data is None]
    return [
        drawn(number(case), place, sample, each.shape, each.dtype)
        for place, each in enumerate(variable)
    ]


@dataclass(frozen=True)
class Expected:
    """Results by (profile, layer, sample) and float bounds by (layer, sample)."""

    results: dict[tuple[NumericsProfile, int, int], Array] = field(default_factory=dict)
    bounds: dict[tuple[int, int], Array] = field(default_factory=dict)

    def of(
        self, profiles: frozenset[NumericsProfile], layer: int, sample: int
    ) -> list[Array]:
        return [self.results[profile, layer, sample] for profile in sorted(profiles)]


def run_oracles(
    cases: Sequence[ConformanceCase],
    profiles: Sequence[NumericsProfile],
    samples: Sequence[int] = range(SAMPLES),
) -> Expected:
    """Run the reference runtime of each profile."""
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


def float_layers(cases: Sequence[ConformanceCase]) -> list[int]:
    """Return the positions of the layers with float results."""
    return [
        place for place, case in enumerate(cases) if case.outputs[0].dtype == "float32"
    ]


def _find_bounds(
    cases: Sequence[ConformanceCase], samples: Sequence[int], expected: Expected
) -> None:
    places = float_layers(cases)
    if not places:
        return
    module = import_cases([cases[place] for place in places], "litert")
    assert isinstance(module.entry, Function)
    for place, call in zip(places, module.entry.body, strict=True):
        described = make_op_call(call, module)
        for sample in samples:
            arrays = full_inputs(described, inputs(cases[place], sample), {})
            result = expected.results[cases[place].oracles[0], place, sample]
            expected.bounds[place, sample] = float_bound(described, arrays, result)
