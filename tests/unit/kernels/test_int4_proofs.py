"""The assembly of int4 micro-kernels is proven, for all weights and inputs.

It is written by hand, and read as a program. One form keeps the weights in float
registers s0, s1, ..., which are loaded at once; they are read as the words in memory.
"""

from __future__ import annotations

import re
from itertools import chain

import pytest
import z3

from firmwright.base.dtypes import INT16, UINT32
from firmwright.kernels.dsp.weight_packing import INT4
from firmwright.kernels.isa.dsp import DSP
from firmwright.kernels.isa.thumb2 import THUMB2
from firmwright.kernels.isa.thumb2_bits import THUMB2_BITS
from firmwright.kernels.program import Pointer, Program
from firmwright.schedules.cortex_m_dsp.im2col import tap_order
from firmwright.schedules.registry import INTRINSICS
from tests.unit.kernels.assembly_reader import AssemblyReader, expanded, macros
from tests.unit.kernels.gemm_claims import accumulators, pairs, sums_after, variables
from tests.unit.kernels.proof import (
    Claim,
    all_on_terms,
    failures,
    join,
    on_terms,
    within,
)

TABLES = (THUMB2, THUMB2_BITS, DSP)
SUMS = [f"c{place}" for place in range(8)]
PIXELS = 4
FORMS = macros("\n".join(INTRINSICS["int4_2x4_1"].definitions))
FORMS = [form for form in FORMS if "INT4_2X4_STEP" in form]
IN_FLOATS = r"vmov (%\[\w+\]), s(\d+)"


def int4_program(form: dict[str, str], steps: int, *, is_end: bool) -> Program:
    lines = [*chain(*(expanded(form["INT4_2X4_STEP"], step) for step in range(steps)))]
    if is_end:
        lines += expanded(form["INT4_2X4_END"], 32 * steps)
    loads = expanded(form["INT4_2X4_LOAD"], steps - 1)
    if loads:
        assert loads == [f"vldmia %[t], {{s0-s{steps - 1}}}"]
        lines = [re.sub(IN_FLOATS, r"ldr \1, [%[w], #4*\2]", line) for line in lines]
    pointers = {name: Pointer(name, UINT32) for name in ("w", "x")}
    name = f"int4_2x4_{steps}{'_end' * is_end}"
    return AssemblyReader(TABLES, SUMS, pointers).read(name, lines)


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
@pytest.mark.parametrize("form", FORMS, ids=["clang", "float", "other"])
def test_int4_steps_add_sums_of_products(
    form: dict[str, str], steps: int, is_end: bool
) -> None:
    program = int4_program(form, steps, is_end=is_end)
    assert not failures(int4_claim(program, steps, is_end=is_end))


@pytest.mark.parametrize("form", FORMS, ids=["clang", "float", "other"])
def test_a_wrong_int4_step_is_found(form: dict[str, str]) -> None:
    step = form["INT4_2X4_STEP"]
    program = int4_program(
        form | {"INT4_2X4_STEP": step.replace(", ror #8", "")}, 1, is_end=False
    )
    found = failures(int4_claim(program, 1, is_end=False))
    assert list(found) == SUMS
    assert found["c5"].startswith("int4_2x4_1: c5 is ")


def shares_program(steps: int) -> Program:
    intrinsic = INTRINSICS[f"int4_shares_{steps}"]
    (macro,) = (form for form in macros("\n".join(intrinsic.definitions)))
    lines = [*chain(*(expanded(macro["INT4_SHARES"], step) for step in range(steps)))]
    registers = [f"s{pixel}" for pixel in range(PIXELS)]
    pointers = {"x": Pointer("x", UINT32)}
    reader = AssemblyReader(TABLES, [*registers, "factors"], pointers)
    return reader.read(intrinsic.name, lines)


def test_int4_shares_are_minus_eight_times_the_columns() -> None:
    steps = 2
    columns = variables("x", PIXELS, 2 * steps)
    (sums,) = variables("s", 1, PIXELS)
    names = [f"s{pixel}" for pixel in range(PIXELS)]
    found = re.search(r"factors = (0x\w+)u", INTRINSICS["int4_shares_2"].text["gnu"])
    factors = {"factors": z3.BitVecVal(int(found[1], 16), 32)}
    words = [
        join(taps[i : i + 2], 16) for i in range(0, 2 * steps, 2) for taps in columns
    ]
    after = [
        s - INT4.even_offset * sum(taps) for s, taps in zip(sums, columns, strict=True)
    ]
    claim = Claim(
        shares_program(steps),
        {"x": words},
        {**dict(zip(names, sums, strict=True)), **factors},
        dict(zip(names, after, strict=True)),
        [within(tap, INT16) for tap in chain(*columns)],
        [*chain(*columns)],
    )
    assert not failures(claim)
