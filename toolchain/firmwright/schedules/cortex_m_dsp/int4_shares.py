"""The part of int4 sums from the columns alone: the weights have an offset of 8."""

from functools import partial

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, pointers
from firmwright.kernels.assembly import body_text, macro_definitions
from firmwright.kernels.dsp.int4_gemm import int4_shares
from firmwright.kernels.portable import called_intrinsics, portable_text
from firmwright.kernels.program import instruction_count
from firmwright.kernels.program_cycles import executed_cycles
from firmwright.schedules.cortex_m_dsp.microkernels import MAX_UNROLL, signed_part


def shares_of_columns(x: Array, *sums: Array) -> tuple[Array, ...]:
    words = np.asarray(x, np.uint32)
    pairs = signed_part(words, 16) + signed_part(words >> np.uint32(16), 16)
    totals = pairs.reshape(-1, 4, *words.shape[1:]).sum(0)
    results: list[Array] = []
    for start, total in zip(sums, totals, strict=True):
        results.append((np.asarray(start) - 8 * total).astype(np.int32))
    return tuple(results)


FACTORS = 0xFFF8FFF8
"""-8, in both halves."""
_DECLARED = f"const uint32_t factors = {FACTORS:#x}u;"


def _int4_shares(steps: int) -> Intrinsic:
    forms = int4_shares(steps)
    return Intrinsic(
        name=f"int4_shares_{steps}",
        operands=(
            *pointers(UINT32, x=4 * steps),
            *(Operand(f"s{i}", "inout", INT32) for i in range(4)),
        ),
        meaning=shares_of_columns,
        portable=f"{_DECLARED}\n{portable_text(forms.wide)}",
        doc=f"Adds -8 times the values of four columns of {steps} words.",
        requires="dsp",
        text={"gnu": f"{_DECLARED}\n{body_text(forms)}"},
        definitions=macro_definitions(forms),
        instructions=instruction_count(forms.wide) + 2,
        cycles=lambda core, _: executed_cycles(forms, core),
        calls=called_intrinsics(forms.wide),
    )


INTRINSIC_MAKERS = {
    f"int4_shares_{steps}": partial(_int4_shares, steps)
    for steps in range(1, MAX_UNROLL + 1)
}
