"""Multiply-accumulate blocks of the DSP extension: statements with pointers, in inline assembly.

`mac_2x4_N`: N steps of two output channels times four pixels. A step reads one word of weights
(bytes a, b, a', b': lanes a, a' of the even channel, b, b' of the odd one) and four words of
columns (int16 pairs, one a pixel) and takes 13 instructions for 16 products. It needs all fourteen
registers, which is why it is one block: a compiler left alone spills.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, UINT32
from firmwright.ir.tir.intrinsic import Intrinsic, Operand

MOST_STEPS = 12
_PIXELS = 4

_PORTABLE = """\
int32_t even[4] = {{c0, c1, c2, c3}};
int32_t odd[4] = {{c4, c5, c6, c7}};
for (int32_t i = 0; i < {steps}; ++i) {{
    const int32_t a0 = (int8_t)(w[i] & 0xffu);
    const int32_t b0 = (int8_t)((w[i] >> 8) & 0xffu);
    const int32_t a1 = (int8_t)((w[i] >> 16) & 0xffu);
    const int32_t b1 = (int8_t)(w[i] >> 24);
    for (int32_t p = 0; p < 4; ++p) {{
        const int32_t low = (int16_t)(x[4 * i + p] & 0xffffu);
        const int32_t high = (int16_t)(x[4 * i + p] >> 16);
        even[p] += a0 * low + a1 * high;
        odd[p] += b0 * low + b1 * high;
    }}
}}
c0 = even[0];
c1 = even[1];
c2 = even[2];
c3 = even[3];
c4 = odd[0];
c5 = odd[1];
c6 = odd[2];
c7 = odd[3];"""

_STEP = """\
    "ldr %[odd], [%[w], #{w}]\\n\\t"
    "ldrd %[p], %[q], [%[x], #{x0}]\\n\\t"
    "sxtb16 %[even], %[odd]\\n\\t"
    "sxtb16 %[odd], %[odd], ror #8\\n\\t"
    "smlad %[c0], %[even], %[p], %[c0]\\n\\t"
    "smlad %[c4], %[odd], %[p], %[c4]\\n\\t"
    "smlad %[c1], %[even], %[q], %[c1]\\n\\t"
    "smlad %[c5], %[odd], %[q], %[c5]\\n\\t"
    "ldrd %[p], %[q], [%[x], #{x2}]\\n\\t"
    "smlad %[c2], %[even], %[p], %[c2]\\n\\t"
    "smlad %[c6], %[odd], %[p], %[c6]\\n\\t"
    "smlad %[c3], %[even], %[q], %[c3]\\n\\t"
    "smlad %[c7], %[odd], %[q], %[c7]\\n\\t\""""

_NARROW_STEP = """\
    "ldr %[odd], [%[w], #{w}]\\n\\t"
    "ldr %[p], [%[x], #{x0}]\\n\\t"
    "sxtb16 %[even], %[odd]\\n\\t"
    "sxtb16 %[odd], %[odd], ror #8\\n\\t"
    "smlad %[c0], %[even], %[p], %[c0]\\n\\t"
    "smlad %[c4], %[odd], %[p], %[c4]\\n\\t"
    "ldr %[p], [%[x], #{x1}]\\n\\t"
    "smlad %[c1], %[even], %[p], %[c1]\\n\\t"
    "smlad %[c5], %[odd], %[p], %[c5]\\n\\t"
    "ldr %[p], [%[x], #{x2}]\\n\\t"
    "smlad %[c2], %[even], %[p], %[c2]\\n\\t"
    "smlad %[c6], %[odd], %[p], %[c6]\\n\\t"
    "ldr %[p], [%[x], #{x3}]\\n\\t"
    "smlad %[c3], %[even], %[p], %[c3]\\n\\t"
    "smlad %[c7], %[odd], %[p], %[c7]\\n\\t\""""

_FRAME = """\
/* clang keeps a register for itself, and so do loops on cores with Helium: a pixel at a time. */
#if defined(__clang__) || defined(__ARM_FEATURE_MVE)
uint32_t even, odd, p;
__asm__(
{narrow}
    : [c0] "+r"(c0), [c1] "+r"(c1), [c2] "+r"(c2), [c3] "+r"(c3),
      [c4] "+r"(c4), [c5] "+r"(c5), [c6] "+r"(c6), [c7] "+r"(c7),
      [even] "=&r"(even), [odd] "=&r"(odd), [p] "=&r"(p)
    : [w] "r"(w), [x] "r"(x)
    : "memory");
#else
uint32_t even, odd, p, q;
__asm__(
{steps}
    : [c0] "+r"(c0), [c1] "+r"(c1), [c2] "+r"(c2), [c3] "+r"(c3),
      [c4] "+r"(c4), [c5] "+r"(c5), [c6] "+r"(c6), [c7] "+r"(c7),
      [even] "=&r"(even), [odd] "=&r"(odd), [p] "=&r"(p), [q] "=&r"(q)
    : [w] "r"(w), [x] "r"(x)
    : "memory");
#endif"""


def _lanes(words: Any) -> tuple[Any, Any]:
    bits = np.asarray(words, np.uint32)
    low = (bits & 0xFFFF).astype(np.uint16).astype(np.int16).astype(np.int64)
    high = (bits >> 16).astype(np.uint16).astype(np.int16).astype(np.int64)
    return low, high


def _bytes(words: Any) -> list[Any]:
    bits = np.asarray(words, np.uint32)
    return [
        ((bits >> np.uint32(8 * i)) & 0xFF).astype(np.uint8).astype(np.int8).astype(np.int64)
        for i in range(4)
    ]


def _meaning(w: Any, x: Any, *acc: Any) -> tuple[Any, ...]:
    """w [N, lanes], x [4 N, lanes], eight accumulators; the new accumulators."""
    a0, b0, a1, b1 = _bytes(w)
    results = []
    for channel in ((a0, a1), (b0, b1)):
        for pixel in range(_PIXELS):
            low, high = _lanes(x[pixel::_PIXELS])
            total = (channel[0] * low + channel[1] * high).sum(axis=0)
            results.append(total)
    return tuple(
        (np.asarray(start, np.int64) + total).astype(np.int32)
        for start, total in zip(acc, results, strict=True)
    )


def _repeated(step: str, steps: int) -> str:
    """`step` at the addresses of steps 0, 1, ...: a word of weights and four of columns each."""
    return "\n".join(
        step.format(w=4 * i, x0=16 * i, x1=16 * i + 4, x2=16 * i + 8, x3=16 * i + 12)
        for i in range(steps)
    )


def _mac_2x4(steps: int) -> Intrinsic:
    steps_text, narrow = (_repeated(step, steps) for step in (_STEP, _NARROW_STEP))
    return Intrinsic(
        name=f"mac_2x4_{steps}",
        operands=(
            Operand("w", "ptr", UINT32, "r", steps),
            Operand("x", "ptr", UINT32, "r", _PIXELS * steps),
            *(Operand(f"c{i}", "inout", INT32) for i in range(2 * _PIXELS)),
        ),
        result=None,
        meaning=_meaning,
        portable=_PORTABLE.format(steps=steps),
        doc=f"{steps} steps of two channels (c0-c3, c4-c7) times four pixels.",
        requires="dsp",
        text={"gnu": _FRAME.format(steps=steps_text, narrow=narrow)},
        clobbers=("memory",),
        instructions=13 * steps,
    )


MAC_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item for item in map(_mac_2x4, range(1, MOST_STEPS + 1))
}
