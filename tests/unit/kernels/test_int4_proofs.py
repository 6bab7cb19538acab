"""Programs of int4 weights are proven, for all weights and inputs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
import z3

from firmwright.base.dtypes import INT16
from firmwright.kernels.dsp.int4_gemm import Int4Form, int4_program, int4_shares
from firmwright.kernels.dsp.weight_packing import INT4, tap_order
from firmwright.kernels.isa.dsp import sxtb16, sxtb16_ror8
from firmwright.kernels.program import Node, Program, Repeat
from firmwright.schedules.cortex_m_dsp.int4_shares import FACTORS
from tests.unit.kernels.gemm_claims import accumulators, pairs, sums_after, variables
from tests.unit.kernels.proof import (
    Claim,
    all_on_terms,
    failures,
    join,
    on_terms,
    within,
)

SUMS = [f"c{place}" for place in range(8)]
PIXELS = 4


def int4_claim(program: Program, steps: int, *, is_end: bool) -> Claim:
    """Return the claim that mixed sums of weights a + 8 and b are added, or separated."""
    taps = 4 * steps
    weights = variables("w", 2, taps)
    columns = variables("x", PIXELS, taps)
    sums = variables("s", 2, PIXELS)
    shares = [z3.BitVec(f"share{pixel}", 32) for pixel in range(PIXELS)]
    ((even, odd),) = pairs(weights)
    stored = [
        all_on_terms(INT4.elements, *tap)[0] for tap in zip(even, odd, strict=True)
    ]
    shifted = [weight + INT4.even_offset for weight in even]
    after = sums_after(sums, [shifted, odd], columns)
    results = accumulators(INT4, after)
    if is_end:
        results = [a + b for a, b in zip(after[0], shares, strict=True)]
        results += [total * (1 << INT4.odd_shift) for total in after[1]]
    x = [
        join([taps[i] for i in word], 16)
        for word in tap_order(taps)
        for taps in columns
    ]
    assumptions = [within(tap, INT16) for tap in chain(*columns)]
    assumptions += [
        on_terms(INT4.weights_fit, *tap) for tap in zip(even, odd, strict=True)
    ]
    return Claim(
        program,
        {"w": [join(stored[i : i + 4], 8) for i in range(0, taps, 4)], "x": x + shares},
        dict(zip(SUMS, accumulators(INT4, sums), strict=True)),
        dict(zip(SUMS, results, strict=True)),
        assumptions,
        [*chain(*columns), *stored, *shifted],
    )


@pytest.mark.parametrize(("steps", "is_end"), [(1, False), (2, True)])
@pytest.mark.parametrize("form", Int4Form)
def test_int4_steps_add_sums_of_products(
    form: Int4Form, steps: int, is_end: bool
) -> None:
    program = int4_program(form, steps, has_end=is_end)
    assert not failures(int4_claim(program, steps, is_end=is_end))


def without_rotation(node: Node) -> Node:
    """Return a block that extracts the same two taps twice."""
    if not isinstance(node, Repeat):
        return node
    body = []
    for step in node.body:
        is_rotated = step.instr is sxtb16_ror8
        body.append(replace(step, instr=sxtb16) if is_rotated else step)
    return replace(node, body=tuple(body))


@pytest.mark.parametrize("form", Int4Form)
def test_a_wrong_int4_step_is_found(form: Int4Form) -> None:
    program = int4_program(form, 1)
    wrong = replace(program, body=tuple(map(without_rotation, program.body)))
    found = failures(int4_claim(wrong, 1, is_end=False))
    assert list(found) == SUMS
    assert found["c5"].startswith("int4_2x4: c5 is ")


def test_int4_shares_are_minus_eight_times_the_columns() -> None:
    steps = 2
    columns = variables("x", PIXELS, 2 * steps)
    (sums,) = variables("s", 1, PIXELS)
    names = [f"s{pixel}" for pixel in range(PIXELS)]
    factors = {"factors": z3.BitVecVal(FACTORS, 32)}
    words = [
        join(taps[i : i + 2], 16) for i in range(0, 2 * steps, 2) for taps in columns
    ]
    after = [
        s - INT4.even_offset * sum(taps) for s, taps in zip(sums, columns, strict=True)
    ]
    claim = Claim(
        int4_shares(steps).wide,
        {"x": words},
        {**dict(zip(names, sums, strict=True)), **factors},
        dict(zip(names, after, strict=True)),
        [within(tap, INT16) for tap in chain(*columns)],
        [*chain(*columns)],
    )
    assert not failures(claim)
