"""GEMM micro-kernels of Armv6-M: eight rows of weights times one column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.schedules.asm_macros import string_lines

# Only eight registers can be multiplied or addressed with. Two sums are in low registers and six in
# high ones, which ADD can reach. MULS overwrites a factor, here the weight. Byte loads with an
# immediate offset are unsigned, so weights are stored with 128 added, and the caller subtracts 128
# times the column's sum. A step is 26 instructions for 8 products. The statement uses named
# registers and stores the sums to memory, since gcc has no registers left.

ROWS = 8
WEIGHT_OFFSET = 128
MAX_UNROLL = 4
_SUMS = ("r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr")
_LOW = 2
"""Number of sums in low registers, the first ones."""
_STEP_INSTRUCTIONS = 2 + 3 * ROWS
_LOOP_INSTRUCTIONS = 4

_PORTABLE = """\
for (int32_t r = 0; r < 8; ++r) {
    int32_t sum = start[r];
    for (int32_t k = 0; k < steps; ++k) {
        sum += w[8 * k + r] * x[k];
    }
    sums[r] = sum;
}"""

_TEXT = """\
register const void *r0 __asm__("r0") = start;
register const void *r2 __asm__("r2") = x;
register const void *r3 __asm__("r3") = w;
register const void *r4 __asm__("r4") = x + steps;
register void *r7 __asm__("r7") = sums;
__asm__ volatile(
    ".syntax unified\\n\\t"
{begin}
    "1:\\n\\t"
{steps}
    "adds r3, #{w_bytes}\\n\\t"
    "adds r2, #{unroll}\\n\\t"
    "cmp r2, r4\\n\\t"
    "bne 1b\\n\\t"
{end}
    : "+r"(r0), "+r"(r2), "+r"(r3)
    : "r"(r4), "r"(r7)
    : "r1", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory");"""


def _begin() -> list[str]:
    lines = [f"ldr {name}, [r0, #{4 * row}]" for row, name in enumerate(_SUMS[:_LOW])]
    for row, name in enumerate(_SUMS[_LOW:], _LOW):
        lines += [f"ldr r1, [r0, #{4 * row}]", f"mov {name}, r1"]
    return lines


def _end() -> list[str]:
    lines = [f"str {name}, [r7, #{4 * row}]" for row, name in enumerate(_SUMS[:_LOW])]
    for row, name in enumerate(_SUMS[_LOW:], _LOW):
        lines += [f"mov r1, {name}", f"str r1, [r7, #{4 * row}]"]
    return lines


def _step(step: int) -> list[str]:
    lines = [f"ldrb r0, [r2, #{step}]", "sxtb r0, r0"]
    for row, name in enumerate(_SUMS):
        add = f"adds {name}, {name}, r1" if row < _LOW else f"add {name}, r1"
        lines += [f"ldrb r1, [r3, #{ROWS * step + row}]", "muls r1, r0", add]
    return lines


def _quoted(lines: list[str]) -> str:
    return "\n".join(string_lines(lines))


def _text(unroll: int) -> str:
    return _TEXT.format(
        begin=_quoted(_begin()),
        steps="\n".join(_quoted(_step(step)) for step in range(unroll)),
        end=_quoted(_end()),
        unroll=unroll,
        w_bytes=ROWS * unroll,
    )


def _meaning(w: Any, x: Any, start: Any, _: Any, steps: int) -> Any:
    weights = np.asarray(w, np.int64)[: ROWS * steps]
    weights = weights.reshape(steps, ROWS, *weights.shape[1:])
    columns = np.asarray(x, np.int64)[:steps, None]
    sums = np.asarray(start, np.int64)[:ROWS] + (weights * columns).sum(axis=0)
    return sums.astype(np.uint32).astype(np.int32)


def unroll_factor(steps: int) -> int:
    return max(n for n in range(1, MAX_UNROLL + 1) if steps % n == 0)


def microkernel_name(steps: int) -> str:
    return f"thumb1_8x1_{unroll_factor(steps)}"


def _executed(unroll: int, steps: int) -> int:
    each = _STEP_INSTRUCTIONS * unroll + _LOOP_INSTRUCTIONS
    return len(_begin()) + len(_end()) + steps // unroll * each


def _block(unroll: int) -> Intrinsic:
    return Intrinsic(
        name=f"thumb1_8x1_{unroll}",
        operands=(
            Operand("w", "ptr", UINT8, "r", ROWS * unroll),
            Operand("x", "ptr", INT8, "r", unroll),
            Operand("start", "ptr", INT32, "r", ROWS),
            Operand("sums", "ptr", INT32, "w", ROWS),
            Operand("steps", "imm", INT32),
        ),
        result=None,
        meaning=_meaning,
        portable=_PORTABLE,
        doc="Products of 8 rows of weights, each 128 too large, with a column of `steps` elements.",
        requires="thumb1",
        text={"gnu": _text(unroll)},
        clobbers=("memory",),
        count=lambda args: _executed(unroll, args[-1]),
    )


THUMB1_MICROKERNELS: Mapping[str, Intrinsic] = {
    item.name: item for item in map(_block, range(1, MAX_UNROLL + 1))
}
