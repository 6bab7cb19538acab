"""What GEMM micro-kernels of the DSP extension compute: plain sums of products.

The variables are weights `w<channel>_<tap>`, taps `x<pixel>_<tap>` and sums
`s<channel>_<pixel>`, all of 32 bits; assumptions limit them to their types. Words are
packed by the same expressions that pack the weights of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import mul
from typing import TypeAlias

import z3

from firmwright.base.dtypes import INT8, INT16
from firmwright.kernels.dsp.gemm import GemmTile, Packing
from firmwright.kernels.dsp.weight_packing import BYTES, PAIRED, PairPacking, tap_order
from firmwright.kernels.program import Program
from tests.unit.kernels.proof import Claim, all_on_terms, join, on_terms, within

PACKINGS = {Packing.PAIRED: PAIRED, Packing.BYTES: BYTES}
"""The packings of both weights of a tap; others have a word of int16 per channel."""

Table: TypeAlias = Sequence[Sequence[z3.BitVecRef]]


def variables(prefix: str, rows: int, columns: int) -> Table:
    return [
        [z3.BitVec(f"{prefix}{row}_{column}", 32) for column in range(columns)]
        for row in range(rows)
    ]


def pairs(rows: Table) -> Iterator[tuple[Sequence[z3.BitVecRef], ...]]:
    """Return the rows of each even channel with those of the odd one after it."""
    return zip(rows[0::2], rows[1::2], strict=True)


def weight_words(
    packing: PairPacking | None, weights: Table, word: Sequence[int]
) -> list[z3.BitVecRef]:
    """Return the words of all channels of a tile for the taps `word`."""
    if packing is None:
        return [join([channel[tap] for tap in word], 16) for channel in weights]
    words = []
    for even, odd in pairs(weights):
        taps = [all_on_terms(packing.elements, even[tap], odd[tap]) for tap in word]
        words.append(join([*chain(*taps)], packing.element.bits))
    return words


def column_words(
    tile: GemmTile, columns: Table, order: Sequence[Sequence[int]]
) -> list[z3.BitVecRef]:
    if tile.has_byte_column:
        (column,) = columns
        return [join(column[i : i + 4], 8) for i in range(0, len(column), 4)]
    return [join([taps[i] for i in word], 16) for word in order for taps in columns]


def accumulators(packing: PairPacking | None, sums: Table) -> list[z3.BitVecRef]:
    """Return what the accumulators of a tile hold for the sums [channel][pixel]."""
    held: list[z3.BitVecRef] = []
    for even, odd in pairs(sums):
        held += even
        if packing is None:
            held += odd
            continue
        held += (
            on_terms(packing.mixed_sum, *each) for each in zip(even, odd, strict=True)
        )
    return held


def sums_after(
    sums: Table, weights: Table, columns: Table, *, is_fresh: bool = False
) -> Table:
    """Return the specification: plain sums of products."""
    return [
        [
            sum(map(mul, channel, column), 0 if is_fresh else start)
            for start, column in zip(starts, columns, strict=True)
        ]
        for starts, channel in zip(sums, weights, strict=True)
    ]


def gemm_claim(
    tile: GemmTile,
    program: Program,
    steps: int,
    *,
    are_obligations_met: bool = True,
    order: Sequence[Sequence[int]] = (),
) -> Claim:
    """Return the claim that `steps` steps add plain sums of products to any sums.

    `order` are the taps of the words of weights, if not the right ones.
    """
    packing = PACKINGS.get(tile.packing)
    taps = steps * (4 if tile.has_byte_column else 2)
    right = tap_order(taps).tolist()
    weights = variables("w", tile.channels, taps)
    columns = variables("x", tile.pixels, taps)
    sums = variables("s", tile.channels, tile.pixels)
    weight_type = INT8 if packing else INT16
    assumptions = [within(each, weight_type) for each in chain(*weights)]
    tap_type = INT8 if tile.has_byte_column else INT16
    assumptions += [within(each, tap_type) for each in chain(*columns)]
    forms = [*chain(*columns), *chain(*weights[0::2])]
    for even, odd in chain(*(zip(*pair, strict=True) for pair in pairs(weights))):
        forms.append(all_on_terms(packing.elements, even, odd)[-1] if packing else odd)
        if packing and are_obligations_met:
            assumptions.append(on_terms(packing.weights_fit, even, odd))
    is_fresh = tile.packing is Packing.FRESH
    after = sums_after(sums, weights, columns, is_fresh=is_fresh)
    names = [value.name for value in program.registers]
    words = [weight_words(packing, weights, word) for word in order or right]
    return Claim(
        program,
        {"w": [*chain(*words)], "x": column_words(tile, columns, right)},
        dict(zip(names, accumulators(packing, sums), strict=True)),
        dict(zip(names, accumulators(packing, after), strict=True)),
        assumptions,
        forms,
        {"steps": steps},
    )
