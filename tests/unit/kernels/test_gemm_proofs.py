"""GEMM micro-kernels are proven, for all values of their operands; see `proof.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import z3
from z3 import z3util

from firmwright.base.dtypes import INT8
from firmwright.kernels.dsp.gemm import (
    BYTES_8X1,
    MAC_2X4,
    PAIRED_2X4,
    PAIRED_4X2,
    PAIRED_8X1,
    GemmTile,
    Packing,
    gemm_program,
)
from firmwright.kernels.dsp.weight_packing import BYTES, INT4, PAIRED, PairPacking
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa.dsp import smlad
from firmwright.kernels.isa.instruction import InstructionSet, Int, Word
from firmwright.kernels.isa.lanes import high, low, wrap_sum
from firmwright.kernels.program import Address, Program, Step, VirtualRegister
from firmwright.ops.conv_window import ConvWindow
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from tests.unit.kernels.gemm_claims import PACKINGS, gemm_claim
from tests.unit.kernels.proof import (
    Claim,
    all_on_terms,
    counterexample,
    failures,
    on_terms,
    within,
)
from tests.unit.kernels.test_execution import LOOPED, TILES

EVEN, ODD, TERM = (z3.BitVec(name, 32) for name in ("even", "odd", "term"))
SHARED = (PAIRED, INT4)
"""The packings of which one element has both weights."""


def named(tile: GemmTile) -> str:
    return tile.name


def changed(program: Program, change: Callable[[Step], Step]) -> Program:
    body = tuple(
        replace(node, body=tuple(map(change, node.body))) for node in program.body
    )
    return replace(program, body=body)


# ---- micro-kernels -------------------------------------------------------------------


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("tile", TILES, ids=named)
def test_a_step_of_gemm_adds_sums_of_products(tile: GemmTile, is_narrow: bool) -> None:
    steps = 2 if tile.packing is Packing.FRESH else 1
    program = gemm_program(tile, steps, is_narrow=is_narrow)
    assert not failures(gemm_claim(tile, program, steps))


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("tile", LOOPED, ids=named)
def test_an_iteration_of_gemm_adds_sums_of_products(
    tile: GemmTile, is_narrow: bool
) -> None:
    program = gemm_program(tile, 1, is_narrow=is_narrow, is_loop=True)
    assert not failures(gemm_claim(tile, program, 1))


@pytest.mark.parametrize("tile", TILES, ids=named)
def test_repetitions_differ_in_the_words_that_they_read_only(tile: GemmTile) -> None:
    """Sums before a step are arbitrary in its proof, so it holds for every repetition."""
    words = {"w": tile.words, "x": tile.column_words}
    for is_narrow in (False, True):
        program = gemm_program(tile, 3, is_narrow=is_narrow)
        for node in program.body:
            for step in node.body:
                for given in step.operands:
                    if isinstance(given, Address):
                        assert given.index.stride == words[given.pointer.name]


# ---- packings ------------------------------------------------------------------------


@pytest.mark.parametrize("packing", [BYTES, PAIRED, INT4])
def test_elements_have_both_weights(packing: PairPacking) -> None:
    fit = on_terms(packing.weights_fit, EVEN, ODD)
    bits = packing.element.bits
    stored = [
        z3.SignExt(32 - bits, z3.Extract(bits - 1, 0, element))
        for element in all_on_terms(packing.elements, EVEN, ODD)
    ]
    unpacked = all_on_terms(packing.weights, *stored)
    for weight, expected in zip(unpacked, (EVEN, ODD), strict=True):
        assert counterexample(weight == expected, fit) is None


@pytest.mark.parametrize("tile", LOOPED, ids=named)
def test_words_of_a_claim_are_those_of_a_layer(tile: GemmTile) -> None:
    steps = 1 if tile.has_byte_column else 2
    claim = gemm_claim(tile, gemm_program(tile, steps), steps)
    rng = np.random.default_rng(1)
    weights = rng.integers(-127, 128, (tile.channels, 4))
    values = [
        (z3.BitVec(f"w{channel}_{tap}", 32), z3.BitVecVal(int(weight), 32))
        for (channel, tap), weight in np.ndenumerate(weights)
    ]
    words = [z3.simplify(z3.substitute(word, values)) for word in claim.memory["w"]]
    layout = Im2colLayout(ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)), 4)
    kernel = weights.reshape(tile.channels, 1, 1, 4)
    of_weights = layout.of_weights(tile.channels, PACKINGS[tile.packing])
    packed = of_weights.pack(kernel)
    assert [word.as_long() for word in words] == packed.reshape(-1).tolist()


def test_the_obligation_of_paired_weights_is_what_its_comment_says() -> None:
    fit = on_terms(PAIRED.weights_fit, EVEN, ODD)
    are_bytes = z3.And(within(EVEN, INT8), within(ODD, INT8))
    stated = z3.And(are_bytes, z3.Not(z3.And(ODD == -128, EVEN < 0)))
    assert counterexample(fit == stated) is None
    assert counterexample(fit, are_bytes) is not None


def test_an_element_holds_any_two_weights_of_four_bits() -> None:
    four_bits = z3.And(EVEN >= -8, EVEN < 8, ODD >= -8, ODD < 8)
    fit = on_terms(INT4.weights_fit, EVEN, ODD)
    assert counterexample(fit == four_bits) is None


@pytest.mark.parametrize("packing", SHARED)
def test_a_shift_gives_the_odd_sum_back(packing: PairPacking) -> None:
    """Requantization takes the sum times any power of two up to that of the packing."""
    mixed = on_terms(packing.mixed_sum, EVEN, ODD)
    odd = on_terms(packing.separate, mixed, EVEN)
    fits = on_terms(packing.sum_fits, ODD)
    for left in range(packing.odd_shift + 1):
        is_exact = odd >> (packing.odd_shift - left) == ODD << left
        assert counterexample(is_exact, fits) is None
    found = counterexample(odd >> packing.odd_shift == ODD)
    assert found is not None
    assert (
        not -(1 << (31 - packing.odd_shift))
        < found["odd"]
        < 1 << (31 - packing.odd_shift)
    )


@pytest.mark.parametrize("packing", SHARED)
def test_a_term_is_added_to_both_sums(packing: PairPacking) -> None:
    mixed = on_terms(packing.mixed_sum, EVEN, ODD)
    added = on_terms(packing.add_to_both, mixed, TERM)
    expected = on_terms(packing.mixed_sum, EVEN + TERM, ODD + TERM)
    assert counterexample(added == expected) is None


# ---- what is wrong is not proven -----------------------------------------------------

PLANTED = InstructionSet("planted", frozenset())


@PLANTED.instruction(smlad.asm, name="smlad")
def crossed(a: Word, b: Word, acc: Int) -> Int:
    return wrap_sum(acc, low(a) * high(b), high(a) * high(b))


@pytest.mark.parametrize("tile", [MAC_2X4, PAIRED_4X2], ids=named)
def test_wrong_semantics_are_found(tile: GemmTile) -> None:
    def crossing(step: Step) -> Step:
        return replace(step, instr=crossed) if step.instr is smlad else step

    program = changed(gemm_program(tile, 1), crossing)
    found = failures(gemm_claim(tile, program, 1))
    assert list(found) == [f"c{place}" for place in range(8)]
    assert found["c6"].startswith(f"{tile.name}: c6 is ")


def test_a_wrong_packing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKINGS, Packing.PAIRED, replace(PAIRED, odd_shift=7))
    found = failures(gemm_claim(PAIRED_4X2, gemm_program(PAIRED_4X2, 1), 1))
    assert found
    for name, failure in found.items():
        assert failure.startswith(f"paired_4x2: {name} is ")


def test_a_wrong_order_of_taps_is_found() -> None:
    program = gemm_program(BYTES_8X1, 1)
    assert not failures(gemm_claim(BYTES_8X1, program, 1, order=[[0, 2], [1, 3]]))
    found = failures(gemm_claim(BYTES_8X1, program, 1, order=[[0, 2], [3, 1]]))
    assert len(found) == 8
    assert found["c7"].startswith("bytes_8x1: c7 is ")


def test_a_wrong_accumulator_is_found() -> None:
    program = gemm_program(PAIRED_2X4, 1)
    one, two = (value for value in program.registers if value.name in ("c1", "c2"))
    exchanged = {one: two, two: one}

    def exchanging(step: Step) -> Step:
        def other(
            given: VirtualRegister | Address | int,
        ) -> VirtualRegister | Address | int:
            return (
                exchanged.get(given, given)
                if isinstance(given, VirtualRegister)
                else given
            )

        operands = tuple(map(other, step.operands))
        results = tuple(map(other, step.results))
        return replace(step, operands=operands, results=results)

    found = failures(gemm_claim(PAIRED_2X4, changed(program, exchanging), 1))
    assert list(found) == ["c1", "c2"]
    assert found["c1"].startswith("paired_2x4: c1 is ")


@pytest.mark.parametrize("tile", [PAIRED_2X4, PAIRED_8X1], ids=named)
def test_weights_that_do_not_fit_are_found(tile: GemmTile) -> None:
    claim = gemm_claim(tile, gemm_program(tile, 1), 1, are_obligations_met=False)
    found = failures(claim)
    odd = [f"c{place}" for place in range(8) if place // tile.pixels % 2]
    assert list(found) == odd
    for name in odd:
        assert re.search(r"w[1357]_[01] = -128\b", found[name])
        assert found[name].startswith(
            f"{tile.name}: {name} is {replayed(claim, name, found[name])}"
        )


def replayed(claim: Claim, name: str, failure: str) -> str:
    """Return what numpy finds for the values that disprove a claim: `1, not 2`."""
    values = [
        (z3.BitVec(variable, 32), z3.BitVecVal(int(value), 32))
        for variable, value in re.findall(r"(\w+) = (-?\d+)", failure)
    ]

    def concrete(term: z3.BitVecRef) -> np.ndarray:
        known = z3.substitute(term, *values)
        others = [(each, z3.BitVecVal(0, 32)) for each in z3util.get_vars(known)]
        return np.array(
            [z3.simplify(z3.substitute(known, *others)).as_long()], np.uint32
        )

    memory = {key: list(map(concrete, words)) for key, words in claim.memory.items()}
    registers = {key: [concrete(total)] for key, total in claim.registers.items()}
    state = run_program(claim.program, evaluate, memory, registers, claim.numbers)
    found = int(state.registers[name][0][0])
    return f"{found}, not {int(concrete(claim.results[name]).astype(np.int32)[0])}"
