"""The part of int4 sums from the columns alone: the weights have an offset of 8."""

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, pointers
from firmwright.kernels.assembly import define, repeat_macro, string_lines
from firmwright.schedules.cortex_m_dsp.microkernels import MAX_UNROLL, signed_part

_C = read_sections(__file__)


def _shares_meaning(x: Array, *sums: Array) -> tuple[Array, ...]:
    words = np.asarray(x, np.uint32)
    pairs = signed_part(words, 16) + signed_part(words >> np.uint32(16), 16)
    totals = pairs.reshape(-1, 4, *words.shape[1:]).sum(0)
    results: list[Array] = []
    for start, total in zip(sums, totals, strict=True):
        results.append((np.asarray(start) - 8 * total).astype(np.int32))
    return tuple(results)


_SUMMED = ("r8", "r9", "r10", "r12")
_OPERATIONS = [f"ldmia %[x]!, {{{', '.join(_SUMMED)}}}"]
_OPERATIONS += [
    f"smlad %[s{i}], {name}, %[factors], %[s{i}]" for i, name in enumerate(_SUMMED)
]
_INT4_SHARES = define("INT4_SHARES(i)", string_lines(_OPERATIONS))


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
