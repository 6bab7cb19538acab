"""The part of int4 sums that depends on the columns alone: weights have an offset of
8.
"""

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, pointers
from firmwright.schedules.asm_macros import define, repeat_macro, string_lines
from firmwright.schedules.cortex_m_dsp.microkernels import MAX_UNROLL, signed_part

_C = read_sections(__file__)


def _shares_meaning(x: Array, *sums: Array) -> tuple[Array, ...]:
    words = np.asarray(x, np.uint32)
    totals = (signed_part(words, 16) + signed_part(words >> np.uint32(16), 16)).reshape(
        -1, 4, *words.shape[1:]
    )
    return tuple(
        (np.asarray(s) - 8 * t).astype(np.int32)
        for s, t in zip(sums, totals.sum(0), strict=True)
    )


_SUMMED = ("r8", "r9", "r10", "r12")
_INT4_SHARES = define(
    "INT4_SHARES(i)",
    string_lines(
        [
            f"ldmia %[x]!, {{{', '.join(_SUMMED)}}}",
            *(
                f"smlad %[s{i}], {name}, %[factors], %[s{i}]"
                for i, name in enumerate(_SUMMED)
            ),
        ]
    ),
)


def _int4_shares(steps: int) -> Intrinsic:
    return Intrinsic(
        name=f"int4_shares_{steps}",
        operands=(
            *pointers(UINT32, x=4 * steps),
            *(Operand(f"s{i}", "inout", INT32) for i in range(4)),
        ),
        meaning=_shares_meaning,
        portable=fill_text(_C["portable"], steps=steps),
        doc=f"Adds -8 times the values of four columns of {steps} words.",
        requires="dsp",
        text={"gnu": fill_text(_C["body"], steps=steps)},
        definitions=(_INT4_SHARES, repeat_macro(steps)),
        instructions=5 * steps + 2,
    )


INTRINSICS = tuple(_int4_shares(steps) for steps in range(1, MAX_UNROLL + 1))
