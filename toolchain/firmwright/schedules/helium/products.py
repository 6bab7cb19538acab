"""Products of columns with weights: four channels times two pixels, sixteen values at a time.

`mve_product_N`: N steps. A step reads sixteen values of each of two columns and sixteen weights of
each of four channels; VMLADAV adds the products across the vector into eight even core registers,
which are all there are of those. `_deep` runs `rounds` times eight further steps in a loop, `_tail`
ends in a step on the last `taps` % 16 values, the others read as zero: nothing beyond the column is
touched. The sums become two vectors of four channels, are requantised (requantize.py) and stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.schedules.helium import requantize

STEP = 16
MOST_STEPS = 12
ROUND = 8

_PORTABLE = """\
const int8_t *const columns[2] = {x0, x1};
int8_t *const results[2] = {y0, y1};
for (int32_t p = 0; p < 2; ++p) {
    for (int32_t c = 0; c < lanes; ++c) {
        int32_t sum = q[c];
        for (int32_t k = 0; k < taps; ++k) {
            sum += w[k / 16 * 64 + 16 * c + k % 16] * columns[p][k];
        }
STEP
        results[p][c] = (int8_t)(raised < high ? raised : high);
    }
}""".replace("STEP", indent(requantize.PORTABLE, " " * 8))

_FRAME = """\
int32x4_t first, second;
const int8_t *weights = w, *left = x0, *right = x1;
{declarations}__asm__ volatile(
{text}
    : [first] "=w"(first), [second] "=w"(second), [w] "+r"(weights), [x0] "+r"(left),
      [x1] "+r"(right){outputs}
    : {inputs}
    : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory");
{ending}"""


def _step(multiply: str, *, predicated: bool) -> list[str]:
    """The assembly of a step: 14 instructions for 128 products."""
    load = "vldrbt.8" if predicated else "vldrb.8"
    lines = [
        *(["vctp.8 %[rest]", "vpstt"] if predicated else []),
        f"{load} q0, [%[x0]], #16",
        f"{load} q1, [%[x1]], #16",
    ]
    for channel in range(requantize.CHANNELS):
        vector = 2 + channel % 2
        lines += [
            f"vldrb.8 q{vector}, [%[w]], #16",
            f"{multiply} {_register(channel)}, q0, q{vector}",
            f"{multiply} {_register(4 + channel)}, q1, q{vector}",
        ]
    return lines


def _register(index: int) -> str:
    return ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")[index]


def _lines(head: int, *, deep: bool, tail: bool) -> list[str]:
    lines: list[str] = []
    for index in range(head):
        lines += _step("vmladava.s8" if index else "vmladav.s8", predicated=False)
    if deep:
        lines.append("1:")
        lines += _step("vmladava.s8", predicated=False) * ROUND
        lines += ["subs %[count], #1", "bne 1b"]
    if tail:
        lines += _step("vmladava.s8" if head else "vmladav.s8", predicated=True)
    for vector, first in (("first", 0), ("second", 4)):
        for lane in (0, 1):
            low, high = _register(first + lane), _register(first + lane + 2)
            lines.append(f"vmov %q[{vector}][{lane + 2}], %q[{vector}][{lane}], {low}, {high}")
    return lines


def _text(head: int, *, deep: bool, tail: bool) -> str:
    lines = _lines(head, deep=deep, tail=tail)
    endings = (("first", "y0"), ("second", "y1"))
    ending = [requantize.vector_text(vector, target) for vector, target in endings]
    inputs = '[rest] "r"(taps % 16)' if tail else ""
    return _FRAME.format(
        declarations=_declarations(deep=deep, tail=tail),
        text="\n".join(f'    "{line}\\n\\t"' for line in lines),
        outputs=', [count] "+r"(count)' if deep else "",
        inputs=inputs,
        ending="\n".join([requantize.PARAMETER_LOADS, *ending]),
    ).replace("    : \n", "    :\n")


def _declarations(*, deep: bool, tail: bool) -> str:
    if deep:
        return "int32_t count = (taps / 16 - 1) / 8;\n"
    return "" if tail else "(void)taps;\n"


def _meaning(w: Any, x0: Any, x1: Any, q: Any, y0: Any, y1: Any, *rest: Any) -> tuple[Any, ...]:
    *settings, taps = rest
    weights = np.asarray(w, np.int64)
    shape = (-1, requantize.CHANNELS, STEP, *weights.shape[1:])
    by_channel = weights.reshape(shape).swapaxes(0, 1).reshape(4, -1, *weights.shape[1:])[:, :taps]
    results = []
    for x in (x0, x1):
        sums = (by_channel * np.asarray(x, np.int64)[None, :taps]).sum(axis=1)
        results.append(requantize.requantize(sums, q, tuple(settings)))
    return tuple(results)


def product_name(taps: int) -> str:
    """The block for columns of `taps` values."""
    steps, tail = divmod(taps, STEP)
    deep = steps > MOST_STEPS
    head = (steps - 1) % ROUND + 1 if deep else steps
    return f"mve_product_{head}" + ("_deep" if deep else "") + ("_tail" if tail else "")


def padded_taps(taps: int) -> int:
    """Values a channel has in the weights: whole steps."""
    return -(-taps // STEP) * STEP


def _product(head: int, *, deep: bool, tail: bool) -> Intrinsic:
    name = f"mve_product_{head}" + ("_deep" if deep else "") + ("_tail" if tail else "")
    lines = _lines(head, deep=deep, tail=tail)
    # A deep block is costed with the three rounds that the usual depths have.
    looped = 3 * (14 * ROUND + 2) - (14 * ROUND + 2) if deep else 0
    return Intrinsic(
        name=name,
        operands=(
            Operand("w", "ptr", INT8, "r", (head + tail) * STEP * 4),
            Operand("x0", "ptr", INT8, "r", head * STEP + tail),
            Operand("x1", "ptr", INT8, "r", head * STEP + tail),
            Operand("q", "ptr", INT32, "r", requantize.PARAMETERS),
            Operand("y0", "ptr", INT8, "w", 1),
            Operand("y1", "ptr", INT8, "w", 1),
            *requantize.ENDING_OPERANDS,
            Operand("taps", "imm", INT32),
        ),
        result=None,
        meaning=_meaning,
        portable=_PORTABLE,
        doc="Four channels of two pixels: products over a column, requantised.",
        requires="mve",
        text={"gnu": _text(head, deep=deep, tail=tail)},
        clobbers=("memory",),
        instructions=len(lines) + looped + 2 * requantize.VECTOR_INSTRUCTIONS + 3,
    )


_SHAPES = (
    *((head, False, tail) for head in range(MOST_STEPS + 1) for tail in (False, True)),
    *((head, True, tail) for head in range(1, ROUND + 1) for tail in (False, True)),
)

PRODUCT_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item
    for item in (
        _product(head, deep=deep, tail=tail) for head, deep, tail in _SHAPES if head or tail
    )
}
