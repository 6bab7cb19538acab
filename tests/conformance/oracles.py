"""What the reference runtimes say of layers: the expected results of every kernel.

In: cases whose names end in their numbers. Out: for each profile, sample and layer the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drawn_data import SAMPLES, drawn
from tflite_writer import input_names, output_names, write_cases

from firmwright.ir.graph.opdef import Array, Case, Numerics
from firmwright.oracle.run import run_oracle

CASES_A_MODEL = 32
"""TFLM's planner takes time with the cube of the operators."""


def number(case: Case) -> int:
    """The number that a layer was drawn with."""
    return int(case.name.rsplit("_", 1)[-1])


def inputs(case: Case, sample: int) -> list[Array]:
    """The variable inputs of a layer."""
    shapes = [each.shape for each in case.inputs if each is not None and each.data is None]
    return [drawn(number(case), place, sample, shape) for place, shape in enumerate(shapes)]


@dataclass(frozen=True)
class Expected:
    """Results by (profile, layer, sample)."""

    results: dict[tuple[Numerics, int, int], Array] = field(default_factory=dict)

    def of(self, profiles: frozenset[Numerics], layer: int, sample: int) -> list[Array]:
        return [self.results[profile, layer, sample] for profile in sorted(profiles)]


def ask(
    cases: Sequence[Case], profiles: Sequence[Numerics], samples: Sequence[int] = range(SAMPLES)
) -> Expected:
    """Ask the runtime of each profile."""
    expected = Expected()
    for profile in profiles:
        for start in range(0, len(cases), CASES_A_MODEL):
            some = cases[start : start + CASES_A_MODEL]
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
            found = run_oracle(write_cases(some), given, profile).outputs
            for sample, outputs in zip(samples, found, strict=True):
                for place, case in enumerate(some):
                    (name,) = output_names(place, case)
                    expected.results[profile, start + place, sample] = outputs[name]
    return expected
