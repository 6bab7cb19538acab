"""Results of the reference runtimes for every conformance case, once per session."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    conformance_cases,
)
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table
from firmwright.oracle.random_samples import SampleInput, make_sample
from tests.ops.reference_answers import Answers, Array, ask_together

SAMPLES = 6
SAMPLES_DEEP = 60
CASES_A_MODEL = 128  # a runtime takes longer to start than to run many operators
INT32_SAMPLES = (-(1 << 20), 1 << 20)  # quantized sums; random words are meaningless


@pytest.fixture(scope="session")
def draw(
    request: pytest.FixtureRequest,
) -> Callable[[ConformanceCase], list[list[Array]]]:
    """Return a function that generates a case's samples: arrays of variable inputs."""
    count = SAMPLES_DEEP if request.config.getoption("--deep") else SAMPLES

    def samples_of(case: ConformanceCase) -> list[list[Array]]:
        specs = [
            _spec(str(position), tensor)
            for position, tensor in enumerate(case.inputs)
            if tensor is not None and tensor.has_samples
        ]
        seed = zlib.crc32(f"{case.builtin} {case.name}".encode())
        return [
            list(make_sample(specs, number, seed).values()) for number in range(count)
        ]

    return samples_of


def _spec(name: str, tensor: CaseTensor) -> SampleInput:
    zero_point = tensor.zero_points[0] if tensor.zero_points else 0
    limits = tensor.value_range or (INT32_SAMPLES if tensor.dtype == "int32" else None)
    return SampleInput(name, tensor.shape, np.dtype(tensor.dtype), zero_point, limits)


@pytest.fixture(scope="session")
def ask(
    draw: Callable[[ConformanceCase], list[list[Array]]],
) -> Callable[[str, str, NumericsProfile], Answers]:
    """Return a function that gives oracle results by operator, case and profile."""
    known: dict[NumericsProfile, dict[tuple[str, str], Answers]] = {}

    def answer(op: str, case: str, numerics: NumericsProfile) -> Answers:
        if numerics not in known:
            cases = {
                (name, case.name): case
                for name, opdef in op_table().items()
                for case in conformance_cases(opdef.name)
                if numerics in opdef.profiles and numerics in case.oracles
            }
            known[numerics] = _ask_all(cases, numerics, draw)
        return known[numerics][op, case]

    return answer


def _ask_all(
    cases: Mapping[tuple[str, str], ConformanceCase],
    numerics: NumericsProfile,
    draw: Callable[[ConformanceCase], list[list[Array]]],
) -> dict[tuple[str, str], Answers]:
    """Run all cases, many per model because a runtime starts slowly."""
    every = list(cases.values())
    answers: list[Answers] = []
    for start in range(0, len(every), CASES_A_MODEL):
        some = every[start : start + CASES_A_MODEL]
        try:
            answers += ask_together(some, numerics, draw)
        except ToolMissingError as error:
            pytest.skip(str(error))
        except ToolFailedError:  # one of them is refused: ask for each, to know which
            answers += [_ask_alone(case, numerics, draw) for case in some]
    return dict(zip(cases, answers, strict=True))


def _ask_alone(
    case: ConformanceCase,
    numerics: NumericsProfile,
    draw: Callable[[ConformanceCase], list[list[Array]]],
) -> Answers:
    try:
        return ask_together([case], numerics, draw)[0]
    except ToolFailedError as error:
        return Answers(refusal=str(error))
