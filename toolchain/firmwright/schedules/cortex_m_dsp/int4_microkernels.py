"""GEMM micro-kernel of the DSP extension for int4 weights: two channels, four pixels.

Its assembly is written by hand (int4_microkernels.c.in): one of its forms keeps the
weights in float registers, numbered by the repetition, which a program cannot state.
"""

from functools import partial

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, pointers
from firmwright.kernels.assembly import PIN_ACCUMULATORS, REGISTER_MACROS, repeat_macro
from firmwright.kernels.dsp.gemm import WIDE_2X4
from firmwright.schedules.cortex_m_dsp.microkernels import (
    ACCUMULATORS,
    halves,
    sums_of_products,
)

_C = read_sections(__file__)

# Weights are bytes 16 b + a + 8 of four taps, in the order of `bytes`
# (kernels/dsp/gemm.py). SXTB16 extracts the operands of the odd channel, and a mask
# those of the even one, which contain 8. The odd accumulator holds 16 times the odd sum
# plus the even one. `end` separates them, and adds to the even sums the word after each
# column: -8 times its sum (`int4_shares`). 25 instructions for 32 products if float
# registers hold the weights, else 26.

INT4_STEPS_MAX = 16
"""Steps of four taps at most; their weights fill half of the float registers."""
_INSTRUCTIONS = 25

_POINTERS = """\
PIN_ACCUMULATORS();
register const void *r11 FIXED_REGISTER("r11") = w;
register const void *r12 FIXED_REGISTER("r12") = x;"""
_RESULTS = "\n".join(f"{name} = sums[{i}];" for i, name in enumerate(ACCUMULATORS))


def _meaning(steps: int, w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
    """Unpack the weights to int16 and evaluate the wide micro-kernel."""
    words = np.asarray(w, np.uint32)
    columns = np.asarray(x, np.uint32)
    rows = []
    for half in (0, 1):
        low, high = halves(words >> np.uint32(8 * half), 8)
        rows += [(low & 15) | (high & 15) << 16, (low & 0xFFFF) | (high & 0xFFFF) << 16]
    wide = np.stack(rows, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    totals = sums_of_products(WIDE_2X4, wide, columns[: 8 * steps], *sums)
    shares = columns[8 * steps :].astype(np.int64)
    if not len(shares):
        return totals
    even = np.stack(totals[:4]).astype(np.int64)
    odd = np.stack(totals[4:]).astype(np.int64)
    results = np.concatenate([even + shares, odd - even])
    return tuple(results.astype(np.uint32).astype(np.int32))


def _intrinsic(steps: int, *, is_end: bool) -> Intrinsic:
    portable = [_C["portable"], _RESULTS]
    doc = f"{4 * steps} taps of 2 channels x 4 pixels, int4 weights"
    end = ""
    if is_end:
        doc += ", separated"
        portable.insert(1, _C["end_portable"])
        end = f" INT4_2X4_END({32 * steps})"
    load = f"INT4_2X4_LOAD({steps - 1})"
    return Intrinsic(
        name=f"int4_2x4_{steps}{'_end' if is_end else ''}",
        operands=(
            *pointers(UINT32, w=steps, x=8 * steps + 4 * is_end),
            *(Operand(name, "inout", INT32) for name in ACCUMULATORS),
        ),
        meaning=partial(_meaning, steps),
        portable=fill_text("\n".join(portable), steps=steps),
        doc=f"{doc}.",
        requires="dsp",
        text={
            "gnu": f"{_POINTERS}\nINT4_2X4({load} STEPS_{steps}(INT4_2X4_STEP){end});"
        },
        definitions=(
            REGISTER_MACROS,
            PIN_ACCUMULATORS,
            _C["macros"],
            repeat_macro(steps),
        ),
        instructions=_INSTRUCTIONS * steps + 1 + 10 * is_end,
    )


INTRINSIC_MAKERS = {
    f"int4_2x4_{steps}{'_end' if is_end else ''}": partial(
        _intrinsic, steps, is_end=is_end
    )
    for steps in range(1, INT4_STEPS_MAX + 1)
    for is_end in (False, True)
}
