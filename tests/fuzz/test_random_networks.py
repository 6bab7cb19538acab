"""Tests of random networks, planned for every target family, against their graphs.

The interpreter runs the planned module serially where buffers overlap, so memory that
is overwritten too early changes the result; deeper grids also trace the accesses of the
C.
"""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.flows.samples.reference_outputs import (
    run_interpreter,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.pipeline import Compilation, compile_model
from firmwright.usmp import interference
from tests.fuzz.random_networks import PARTED, random_network, random_options

NETWORKS = 12
DEEP_NETWORKS = 3000
WATCHED = 3
DEEP_WATCHED = 300
BLOCK = 12
ONCE_WRONG = (123,)
"""A convolution to a single row, in bands of two rows."""


def blocks(count: int, deep_count: int) -> list[object]:
    """Return blocks of a dozen seeds: the first `count`, and the others with --deep."""
    seeds = [
        *range(0, deep_count, BLOCK),
        *range(PARTED, PARTED + deep_count // 10, BLOCK),
    ]
    return [
        pytest.param(first, marks=[pytest.mark.deep] if first >= count else [])
        for first in seeds
    ]


def planned(seed: int) -> Compilation:
    return compile_model(random_network(seed), random_options(seed))


def differs(compiled: Compilation) -> bool:
    """Return whether the planned module differs from the graph's outputs."""
    samples = generate_samples(compiled.module.io.inputs, 1).samples
    (expected,) = run_numpy_reference(compiled.imported, samples).outputs
    (actual,) = run_interpreter(compiled.module, samples).outputs
    return any(not np.array_equal(expected[name], actual[name]) for name in expected)


@pytest.mark.parametrize("first", blocks(NETWORKS, DEEP_NETWORKS))
def test_a_planned_network_equals_its_graph(first: int) -> None:
    shared = 0
    for seed in range(first, first + BLOCK):
        compiled = planned(seed)
        assert not differs(compiled), seed
        plan = compiled.module.plan
        assert plan is not None
        sizes = {buffer.name: buffer.size_bytes for buffer in plan.buffers}
        shared += any(
            c.hi < sizes[c.a] or c.lo > -sizes[c.b] or c.modulus for c in plan.conflicts
        )
    assert shared > BLOCK // 3


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_past_failures_stay_fixed(seed: int) -> None:
    assert not differs(planned(seed))


def test_missing_offset_constraints_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a mutation, no input and output of a call have an offset constraint."""

    def nothing(
        func: tir.PrimFunc, source: str, result: str
    ) -> tuple[OffsetConstraint[str], ...]:
        return ()

    seeds = range(8)
    monkeypatch.setattr(interference, "find_offset_constraints", nothing)
    assert sum(differs(planned(seed)) for seed in seeds) >= 4


@pytest.mark.host_c
@pytest.mark.parametrize("first", blocks(1, DEEP_WATCHED))
def test_generated_c_accesses_only_its_own_buffers(first: int, deep: bool) -> None:
    for seed in range(first, first + (BLOCK if deep else WATCHED)):
        found = verify(planned(seed), samples=2, open_with=open_checked_session)
        assert found.mismatches == 0, seed
