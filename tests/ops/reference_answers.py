"""The answers of a reference runtime to conformance cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmwright.conformance.case_tables import ConformanceCase
from firmwright.ir.settings import NumericsProfile
from firmwright.oracle.reference_runner import run_reference
from tests.ops.tflite_writer import input_names, output_names, write_cases

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Answers:
    """An oracle's results for one case: outputs per sample, or the refusal's reason."""

    outputs: tuple[tuple[Array, ...], ...] = ()
    refusal: str = ""


def ask_together(
    cases: Sequence[ConformanceCase],
    numerics: NumericsProfile,
    draw: Callable[[ConformanceCase], list[list[Array]]],
) -> list[Answers]:
    """Return the results of one model with all cases; `draw` gives a case's samples."""
    drawn = [draw(case) for case in cases]
    inputs = [
        {
            name: value
            for index, case in enumerate(cases)
            for name, value in zip(
                input_names(index, case), drawn[index][number], strict=True
            )
        }
        for number in range(len(drawn[0]))
    ]
    result = run_reference(write_cases(cases), inputs, numerics)
    return [
        Answers(
            tuple(
                tuple(given[name] for name in output_names(index, case))
                for given in result.outputs
            )
        )
        for index, case in enumerate(cases)
    ]
