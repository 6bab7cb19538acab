"""GEMM micro-kernels of the DSP extension as intrinsics: kernels/dsp/gemm.py."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs, pointers
from firmwright.kernels import contract
from firmwright.kernels.assembly import body_text, macro_definitions
from firmwright.kernels.dsp.gemm import (
    BYTES_8X1,
    FRESH_2X4,
    MAC_2X4,
    MAC_4X2,
    MAC_8X1,
    MAC_BYTES_8X1,
    PAIRED_2X4,
    PAIRED_4X2,
    PAIRED_8X1,
    WIDE_2X4,
    GemmTile,
    Packing,
    gemm_forms,
    gemm_program,
)
from firmwright.kernels.dsp.weight_packing import PAIRED
from firmwright.kernels.evaluation import evaluate_expression
from firmwright.kernels.portable import called_intrinsics, portable_text
from firmwright.kernels.program import instruction_count
from firmwright.kernels.program_cycles import executed_cycles

MAX_UNROLL = 32
"""Maximum number of steps; the code is then about 1.5 KB."""
SHORT_UNROLL = 8
"""The steps of loops that fit an instruction cache of 1 KB together with the store."""
ACCUMULATORS = tuple(f"c{i}" for i in range(8))

_COLUMN_TILES = (
    *(WIDE_2X4, FRESH_2X4),
    *(MAC_2X4, MAC_4X2, MAC_8X1),
    *(PAIRED_2X4, PAIRED_4X2, PAIRED_8X1),
)
_REPEATED_STEPS = 18
"""Maximum number of steps in an iteration of a loop."""
_LOOP_INSTRUCTIONS = 3
"""Instructions per iteration of a loop inside a micro-kernel, besides its steps."""
_SPILLED = 6
"""Spill instructions around `bytes`, which takes every register, even the loop's."""


def signed_part(bits: Array, size: int) -> Array:
    shifted = np.asarray(bits, np.uint32) << np.uint32(32 - size)
    return (shifted.astype(np.int32) >> np.int32(32 - size)).astype(np.int64)


def halves(words: Array, size: int) -> tuple[Array, Array]:
    """Return the `size` low bits of the lower and of the upper halves, with sign."""
    return signed_part(words, size), signed_part(words >> np.uint32(16), size)


def sums_of_products(
    tile: GemmTile, w: Array, x: Array, *sums: Array
) -> tuple[Array, ...]:
    """Return the accumulators of a tile after all of its words.

    Words `w` and `x` are [word, lanes]. This is what a program must compute: for each
    channel and pixel, the plain sum of products of unpacked weights and taps.
    """
    columns = np.asarray(x, np.uint32)
    if tile.has_byte_column:
        columns = _widen_bytes(columns)
    columns = columns.reshape(-1, tile.pixels, *columns.shape[1:])
    words = np.asarray(w, np.uint32).reshape(len(columns), -1, *w.shape[1:])
    channels: list[tuple[Array, Array]] = []
    for first in range(0, words.shape[1], tile.packing.words):
        channels += _unpack(tile.packing, words[:, first : first + tile.packing.words])
    taps = halves(columns, 16)
    weights = [np.stack(each, axis=1) for each in zip(*channels, strict=True)]
    starts = sums or (0,) * len(ACCUMULATORS)
    return contract.sums_of_products(
        np.concatenate(weights), np.concatenate(taps), starts
    )


def _unpack(packing: Packing, words: Array) -> tuple[tuple[Array, Array], ...]:
    """Return the weights of the even and of the odd channel of a pair, two taps each.

    Words are [step, word].
    """
    first = words[:, 0]
    match packing:
        case Packing.WIDE | Packing.FRESH:
            return halves(first, 16), halves(words[:, 1], 16)
        case Packing.PAIRED:
            return halves(first, 8), halves(first, 16)
        case Packing.BYTES:
            return halves(first, 8), halves(first >> np.uint32(8), 8)


def _widen_bytes(words: Array) -> Array:
    """Return columns of int16 pairs: of each word, bytes 0 and 2, then 1 and 3."""
    widened: list[Array] = []
    for half in (0, 1):
        low, high = halves(words >> np.uint32(8 * half), 8)
        widened.append((low & 0xFFFF) | (high & 0xFFFF) << 16)
    stacked = np.stack(widened, axis=1).reshape(-1, *words.shape[1:])
    return np.asarray(stacked.astype(np.uint32))


def _unrolled(tile: GemmTile, steps: int, *, is_loop: bool = False) -> Intrinsic:
    """Return the micro-kernel of `steps` steps, which its code may repeat."""
    program = gemm_program(tile, steps)
    forms = gemm_forms(tile, steps, is_loop=is_loop)
    access: Literal["out", "inout"] = "inout"
    if tile.packing is Packing.FRESH:
        access = "out"
    return Intrinsic(
        name=f"{tile.name}_{steps}",
        operands=(
            *pointers(UINT32, w=tile.words * steps, x=tile.column_words * steps),
            *(Operand(name, access, INT32) for name in ACCUMULATORS),
        ),
        meaning=partial(sums_of_products, tile),
        portable=portable_text(gemm_program(tile, steps, is_loop=is_loop)),
        doc=_doc(tile, steps),
        requires="dsp",
        text={"gnu": body_text(forms)},
        definitions=macro_definitions(forms),
        instructions=instruction_count(program) + _SPILLED * tile.has_byte_column,
        cycles=lambda core, _: executed_cycles(forms, core),
        calls=called_intrinsics(program),
    )


def _doc(tile: GemmTile, steps: int) -> str:
    if tile.has_byte_column:
        taps = 4 * steps
        kind = ", paired channels" if tile.packing is Packing.PAIRED else ""
        return f"{taps} taps of 8 channels x 1 pixel{kind}, int8 columns."
    kinds = {
        Packing.PAIRED: ", paired channels",
        Packing.FRESH: ", starting at zero",
    }
    size = f"{tile.channels} channels x {tile.pixels} pixels"
    return f"{steps} steps of {size}{kinds.get(tile.packing, '')}."


def _loop(tile: GemmTile, steps: int) -> Intrinsic:
    """Return a micro-kernel that repeats `steps` steps, for a number of steps given."""
    once = _unrolled(tile, steps, is_loop=True)
    w, x, *sums = once.operands
    forms = gemm_forms(tile, steps, is_loop=True)

    def run(w: Array, x: Array, count: Array, *sums: Array) -> tuple[Array, ...]:
        end = int(np.max(count))
        columns = x[: end * tile.column_words]
        return sums_of_products(tile, w[: end * tile.words], columns, *sums)

    def count_instructions(args: Sequence[int]) -> int:
        each = instruction_count(gemm_program(tile, 1)) * steps
        repeats = args[2] // steps
        return (each + _LOOP_INSTRUCTIONS) * repeats + once.instructions - each

    return replace(
        once,
        name=f"{tile.name}_loop_{steps}",
        operands=(
            replace(w, extent=w.extent // steps, times="steps"),
            replace(x, extent=x.extent // steps, times="steps"),
            *inputs(INT32, "steps"),
            *sums,
        ),
        meaning=run,
        doc=f"Repeats {once.doc}",
        count=count_instructions,
        cycles=lambda core, args: executed_cycles(forms, core, args[2]),
    )


_ODD_SUM = PAIRED.separate(
    ArithExpr(tir.Var("odd", INT32)), ArithExpr(tir.Var("even", INT32))
)


def _odd_sum_meaning(odd: Array, even: Array) -> Array:
    return evaluate_expression(_ODD_SUM.expr, {"odd": odd, "even": even})


EXTRACT_ODD_SUM = Intrinsic(
    "extract_odd_sum",
    inputs(INT32, "odd", "even"),
    _odd_sum_meaning,
    portable="",
    doc="""\
256 times the sum of the odd channel of a pair.
A word of packed weights has two taps of both channels, as int16 lanes 256 * odd + even: tap t
in the low half, tap t + 2 in the high half, as SXTB16 splits a word of inputs. SXTB16 also
extracts the even weights. Products with whole lanes sum up to 256 times the odd sum plus the
even sum, which is subtracted here; the bias of an odd channel is packed alike. Requantization
takes both sums times the same power of two: even sums are shifted left, and odd ones right if
it is less than 256.""",  # noqa: E501
    result=INT32,
    value=_ODD_SUM.expr,
)


def default_unroll(words: int, limit: int = MAX_UNROLL) -> int:
    """Return the steps per micro-kernel call: `words`, or a divisor if too many."""
    if words <= limit:
        return words
    return max(n for n in range(1, min(limit, _REPEATED_STEPS) + 1) if words % n == 0)


@dataclass(frozen=True, slots=True)
class RepeatedSteps:
    """How the steps of a product are executed: some, in a loop, and then the `rest`."""

    steps: int
    rest: int = 0


def repeated_steps(words: int, limit: int = MAX_UNROLL) -> RepeatedSteps:
    """Return the steps of an iteration, at most `limit`, and those after the loop.

    They are a divisor of `words`, unless all of its divisors are small and there are so
    many words that the code of a rest is worth its bytes.
    """
    divisor, most = default_unroll(words, limit), min(limit, _REPEATED_STEPS)
    if words <= 2 * limit or 2 * divisor >= most:
        return RepeatedSteps(divisor)

    def cost(split: RepeatedSteps) -> tuple[int, int]:
        return words // split.steps + bool(split.rest), split.steps + split.rest

    sizes = range(divide_up(most, 2), most + 1)
    return min((RepeatedSteps(size, words % size) for size in sizes), key=cost)


def has_same_steps(words: int, limit: int, most: int = MAX_UNROLL) -> bool:
    """Return whether at most `limit` steps per call are the same as at most `most`.

    A step multiplies one of the `words` of a column, or two, if weights are packed so.
    """
    counts = (words,) if words % 2 else (words, words // 2)
    return all(
        repeated_steps(count, limit) == repeated_steps(count, most) for count in counts
    )


def alternative_unrolls(words: int) -> list[int]:
    default = default_unroll(words)
    candidates = {default_unroll(words, limit) for limit in (4, 8, 16, 24, MAX_UNROLL)}
    return sorted(candidates - {default}, reverse=True)


def _makers() -> Iterator[tuple[str, Callable[[], Intrinsic]]]:
    unrolled = [*product(_COLUMN_TILES, range(1, MAX_UNROLL + 1))]
    unrolled += product([BYTES_8X1, MAC_BYTES_8X1], range(1, MAX_UNROLL // 2 + 1))
    for tile, steps in unrolled:
        yield f"{tile.name}_{steps}", partial(_unrolled, tile, steps)
        if steps <= _REPEATED_STEPS and tile.packing.words == 1:
            yield f"{tile.name}_loop_{steps}", partial(_loop, tile, steps)


INTRINSICS = (EXTRACT_ODD_SUM,)
INTRINSIC_MAKERS = dict(_makers())
