"""GEMM micro-kernels of the DSP extension, in inline assembly."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs, pointers
from firmwright.schedules.cortex_m_dsp.microkernel_assembly import (
    BYTES_8X1,
    COLUMN_MICROKERNELS,
    INT4_2X4,
    PAIRED_8X1,
    WIDE_2X4,
    DspMicrokernel,
)
from firmwright.schedules.cortex_m_dsp.microkernel_macros import (
    ACCUMULATORS,
    INT4_STEPS_MAX,
    assembly_body,
    loop_body,
    macro_definitions,
)

_C = read_sections(__file__)

# A micro-kernel executes N steps. A step multiplies two taps for eight accumulators:
# `2x4` is two output channels times four pixels, and there are `4x2` and `8x1`. It
# reads one word of weights per channel pair and one word of columns (a pair of int16)
# per pixel. It needs all fourteen registers, so it is a single asm statement
# (microkernel_macros.py); compilers spill otherwise.
#
# Packings of the weights of a channel pair (a, a' of the even channel, b, b' of the odd
# one):
#
# - `wide`: int16, a word for each channel; 11 instructions for 16 products. `fresh` is
#   the same with accumulators that start at zero.
# - `mac`: bytes a, b, a', b', split by SXTB16 with and without rotation; 13
#   instructions for 16 products, only as 2x4.
# - `paired`: lanes 256 b + a and 256 b' + a', as int16:
#
#       bit  31          16 15           0
#           | 256 b' + a'  |  256 b + a   |    SXTB16: a', a; the raw word: b', b
#
#   The odd accumulator then holds 256 times the odd sum plus the even sum, and
#   `extract_odd_sum` subtracts the latter. 12 instructions for 16 products (15 as 8x1).
#   It is exact modulo 2^32 if each lane fits int16 (no b of -128 with a negative a) and
#   the odd channel's sum, bias included, fits 24 bits; the caller must prove both.
# - `bytes`: `paired` 8x1 over a column of plain int8. A step widens the word of four
#   taps itself: k0 and k2, then k1 and k3. 31 instructions for 32 products.
# - `int4`: bytes 16 b + a + 8 of four taps, in the order of `bytes`. SXTB16 extracts
#   the operands of the odd channel, and a mask those of the even one, which contain 8.
#   The odd accumulator holds 16 times the odd sum plus the even one. `end` separates
#   them, and adds to the even sums the word after each column: -8 times its sum
#   (`int4_shares`). 25 instructions for 32 products if float registers hold the
#   weights, else 26.

MAX_UNROLL = 32
"""Maximum number of steps; the code is then about 1.5 KB."""
SHORT_UNROLL = 8
"""The steps of loops that fit an instruction cache of 1 KB together with the store."""

_REPEATED_STEPS = 18
"""Maximum number of steps in an iteration of a loop."""
_LOOP_INSTRUCTIONS = 3
"""Instructions per iteration of a loop inside a micro-kernel, besides its steps."""

_RESULTS = "\n".join(f"{name} = sums[{i}];" for i, name in enumerate(ACCUMULATORS))


def _loop(shape: DspMicrokernel, steps: int) -> Intrinsic:
    """Return a micro-kernel that repeats `steps` steps, for a number of steps given."""
    plain = _unrolled(shape, steps)
    w, x, *sums = plain.operands

    def run(w: Array, x: Array, count: Array, *sums: Array) -> tuple[Array, ...]:
        end = int(np.max(count))
        columns = x[: end * shape.column_words]
        return tuple(plain.meaning(w[: end * shape.words], columns, *sums))

    def count_instructions(args: Sequence[int]) -> int:
        each = shape.instructions * steps
        repeats = args[2] // steps
        return (each + _LOOP_INSTRUCTIONS) * repeats + plain.instructions - each

    return replace(
        plain,
        name=f"{shape.name}_loop_{steps}",
        operands=(
            replace(w, extent=w.extent // steps, times="steps"),
            replace(x, extent=x.extent // steps, times="steps"),
            *inputs(INT32, "steps"),
            *sums,
        ),
        meaning=run,
        portable=plain.portable.replace(f"i < {steps};", "i < steps;"),
        doc=f"Repeats {plain.doc}",
        text={"gnu": loop_body(shape, steps)},
        definitions=macro_definitions(shape, steps, is_loop=True),
        count=count_instructions,
    )


def signed_part(bits: Array, size: int) -> Array:
    shifted = np.asarray(bits, np.uint32) << np.uint32(32 - size)
    return (shifted.astype(np.int32) >> np.int32(32 - size)).astype(np.int64)


def _meaning(shape: DspMicrokernel) -> Callable[..., tuple[Array, ...]]:
    """Return the meaning for w [words N, lanes], x [pixels N, lanes] and the sums."""

    def run(w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
        words = np.asarray(w, np.uint32)
        columns = np.asarray(x, np.uint32)
        totals: list[Array] = []
        for pair in range(shape.pairs):
            if shape.has_wide_weights:
                even = _halves(words[2 * pair :: shape.words], 16)
                odd = _halves(words[2 * pair + 1 :: shape.words], 16)
            else:
                both = words[pair :: shape.words]
                even = _halves(both, 8)
                size = 16 if shape.kind == "paired" else 8
                odd = _halves(both >> np.uint32(16 - size), size)
            for low_weight, high_weight in (even, odd):
                for pixel in range(shape.pixels):
                    low, high = _halves(columns[pixel :: shape.pixels], 16)
                    totals.append((low_weight * low + high_weight * high).sum(axis=0))
        results: list[Array] = []
        for start, total in zip(sums or (0,) * len(totals), totals, strict=True):
            wide = np.asarray(start, np.int64) + total
            results.append(wide.astype(np.uint32).astype(np.int32))
        return tuple(results)

    return run


def _halves(words: Array, size: int) -> tuple[Array, Array]:
    """Return the `size` low bits of the lower and of the upper halves, with sign."""
    return signed_part(words, size), signed_part(words >> np.uint32(16), size)


def _times(factor: int, name: str) -> str:
    return name if factor == 1 else f"{factor} * {name}"


# The parts of a word as signed integers, in the portable C: its halves, and the lower
# and upper bytes of these.
_HALVES = ("(int16_t)({} & 0xffffu)", "(int16_t)({} >> 16)")
_LOW_BYTES = ("(int8_t)({} & 0xffu)", "(int8_t)(({} >> 16) & 0xffu)")
_HIGH_BYTES = ("(int8_t)(({} >> 8) & 0xffu)", "(int8_t)({} >> 24)")


def _portable(shape: DspMicrokernel, steps: int) -> str:
    words = shape.words // shape.pairs
    first = f"{_times(shape.words, 'i')} + {_times(words, 'pair')}"
    names = ("even_word", "odd_word")[:words] if words > 1 else ("word",)
    declared = [f"const uint32_t {names[0]} = w[{first}];"]
    declared += [f"const uint32_t {name} = w[{first} + 1];" for name in names[1:]]
    even = _HALVES if shape.has_wide_weights else _LOW_BYTES
    odd = _HIGH_BYTES if shape.kind == "mac" else _HALVES
    return fill_text(
        _C["portable"],
        start="0" if shape.is_fresh else ", ".join(ACCUMULATORS),
        steps=steps,
        pairs=shape.pairs,
        pixels=shape.pixels,
        words="\n".join(" " * 8 + x for x in declared),
        pair_sums=_times(2 * shape.pixels, "pair"),
        column=_times(shape.pixels, "i"),
        a0=even[0].format(names[0]),
        a1=even[1].format(names[0]),
        b0=odd[0].format(names[-1]),
        b1=odd[1].format(names[-1]),
        results=_RESULTS,
    )


def _intrinsic(shape: DspMicrokernel, steps: int) -> Intrinsic:
    packings = {"paired": ", paired channels", "fresh": ", starting at zero"}
    tile = f"{shape.channels} channels x {shape.pixels} pixels"
    access: Literal["out", "inout"] = "out" if shape.is_fresh else "inout"
    return Intrinsic(
        name=f"{shape.name}_{steps}",
        operands=(
            *pointers(UINT32, w=shape.words * steps, x=shape.column_words * steps),
            *(Operand(name, access, INT32) for name in ACCUMULATORS),
        ),
        meaning=_meaning(shape),
        portable=_portable(shape, steps),
        doc=f"{steps} steps of {tile}{packings.get(shape.kind, '')}.",
        requires="dsp",
        text={"gnu": assembly_body(shape, steps)},
        definitions=macro_definitions(shape, steps),
        instructions=shape.instructions * steps,
    )


_BYTES_PORTABLE = "\n".join([_C["bytes_portable"], _RESULTS])


def _bytes_meaning(w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
    """Widen the bytes to columns and evaluate the paired micro-kernel."""
    words = np.asarray(x, np.uint32)
    halves: list[Array] = []
    for half in (0, 1):
        low, high = _halves(words >> np.uint32(8 * half), 8)
        halves.append((low & 0xFFFF) | (high & 0xFFFF) << 16)
    columns = np.stack(halves, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    return _meaning(PAIRED_8X1)(w, columns, *sums)


_SPILLED = 6
"""Spill instructions around `bytes`, which takes every register, even the loop's."""


def _bytes_intrinsic(groups: int) -> Intrinsic:
    taps = 4 * groups
    return replace(
        _intrinsic(BYTES_8X1, groups),
        operands=(
            *pointers(UINT32, w=BYTES_8X1.words * groups, x=groups),
            *(Operand(name, "inout", INT32) for name in ACCUMULATORS),
        ),
        meaning=_bytes_meaning,
        portable=fill_text(_BYTES_PORTABLE, groups=groups),
        doc=f"{taps} taps of 8 channels x 1 pixel, paired channels, int8 columns.",
        instructions=BYTES_8X1.instructions * groups + _SPILLED,
    )


def _int4_meaning(steps: int, w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
    """Unpack the weights to int16 and evaluate the wide micro-kernel."""
    words = np.asarray(w, np.uint32)
    columns = np.asarray(x, np.uint32)
    rows = []
    for half in (0, 1):
        low, high = _halves(words >> np.uint32(8 * half), 8)
        rows += [(low & 15) | (high & 15) << 16, (low & 0xFFFF) | (high & 0xFFFF) << 16]
    wide = np.stack(rows, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    totals = _meaning(WIDE_2X4)(wide, columns[: 8 * steps], *sums)
    shares = columns[8 * steps :].astype(np.int64)
    if not len(shares):
        return totals
    even = np.stack(totals[:4]).astype(np.int64)
    odd = np.stack(totals[4:]).astype(np.int64)
    results = np.concatenate([even + shares, odd - even])
    return tuple(results.astype(np.uint32).astype(np.int32))


def _int4_intrinsic(steps: int, *, is_end: bool) -> Intrinsic:
    plain = _intrinsic(INT4_2X4, steps)
    shape = INT4_2X4
    portable = [_C["int4_portable"], _RESULTS]
    body = assembly_body(shape, steps)
    doc = f"{4 * steps} taps of 2 channels x 4 pixels, int4 weights"
    if is_end:
        doc += ", separated"
        portable.insert(1, _C["int4_end_portable"])
        body = body.replace("));", f") INT4_2X4_END({32 * steps}));")
    return replace(
        plain,
        name=plain.name + "_end" * is_end,
        operands=(
            *pointers(UINT32, w=steps, x=8 * steps + 4 * is_end),
            *plain.operands[2:],
        ),
        meaning=partial(_int4_meaning, steps),
        portable=fill_text("\n".join(portable), steps=steps),
        doc=f"{doc}.",
        text={"gnu": body},
        instructions=shape.instructions * steps + 1 + 10 * is_end,
    )


def _odd_sum_meaning(odd: Array, even: Array) -> Array:
    wide = np.asarray(odd, np.int64) - np.asarray(even, np.int64)
    return np.asarray(wide.astype(np.uint32).astype(np.int32))


EXTRACT_ODD_SUM = Intrinsic(
    "extract_odd_sum",
    inputs(INT32, "odd", "even"),
    _odd_sum_meaning,
    portable="return (int32_t)((uint32_t)odd - (uint32_t)even);",
    doc=_C["extract_odd_sum_doc"],
    result=INT32,
)


def default_unroll(words: int, limit: int = MAX_UNROLL) -> int:
    """Return the steps per micro-kernel call: `words`, or a divisor if too many."""
    if words <= limit:
        return words
    return max(n for n in range(1, min(limit, _REPEATED_STEPS) + 1) if words % n == 0)


def alternative_unrolls(words: int) -> list[int]:
    default = default_unroll(words)
    candidates = {default_unroll(words, limit) for limit in (4, 8, 16, 24, MAX_UNROLL)}
    return sorted(candidates - {default}, reverse=True)


def _unrolled(shape: DspMicrokernel, steps: int) -> Intrinsic:
    return _bytes_intrinsic(steps) if shape == BYTES_8X1 else _intrinsic(shape, steps)


def _makers() -> Iterator[tuple[str, Callable[[], Intrinsic]]]:
    unrolled = [*product(COLUMN_MICROKERNELS, range(1, MAX_UNROLL + 1))]
    unrolled += product([BYTES_8X1], range(1, MAX_UNROLL // 2 + 1))
    for shape, steps in unrolled:
        yield f"{shape.name}_{steps}", partial(_unrolled, shape, steps)
        if steps <= _REPEATED_STEPS and not shape.has_wide_weights:
            yield f"{shape.name}_loop_{steps}", partial(_loop, shape, steps)
    for steps in range(1, INT4_STEPS_MAX + 1):
        name = f"{INT4_2X4.name}_{steps}"
        yield name, partial(_int4_intrinsic, steps, is_end=False)
        yield f"{name}_end", partial(_int4_intrinsic, steps, is_end=True)


INTRINSICS = (EXTRACT_ODD_SUM,)
INTRINSIC_MAKERS = dict(_makers())
